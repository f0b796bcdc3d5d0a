"""A federation on Flower's own messages, without network: a Grid that calls the client apps itself."""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from cgpfl.data import FederatedData, IndexTable
from cgpfl.engine.flower.apps import client_app
from cgpfl.engine.flower.node import Node
from cgpfl.engine.flower.worker import answer


def only(data, i):
    """Client ``i`` of a federation as a federation of one: its own samples, nobody else's."""
    parts = [t.parts()[i] for t in (data.train, data.test)]
    rows, first = np.concatenate(parts), np.arange(len(parts[0]))
    tables = IndexTable.of([first]), IndexTable.of([np.arange(len(first), len(rows))])
    return FederatedData(data.x[rows], data.y[rows], data.classes, *tables, scale=data.scale, shift=data.shift)


class Here(Grid):
    """Nodes 1..N in this process, the one of client i being i + 1.

    ``behave[client](order, answer)`` may change an answer (a RecordDict) or lose it (None).
    """

    def __init__(self, data, model, methods, folder, *, seed=0, behave=None, metrics=()):
        self.identity()
        self.online = list(range(1, data.clients + 1))
        self.behave = behave or {}
        self.sent, self.got, self._replies = [], [], {}
        self.apps, self.contexts = {}, {}
        for node in self.online:

            def work(context, order, arrays, client=node - 1):
                def load(label):
                    own = only(data, client)
                    place = folder / str(client)
                    return Node(methods[label], model, own, client, data.clients, seed, place, metrics)

                asked = {name: order[name] for name in ("token", "client", "base", "train", "evaluate")}
                return answer(load, {"order": asked, "node": order["label"]}, arrays)

            self.join(node, node - 1, client_app(work))

    @staticmethod
    def identity():
        """As in a ServerApp."""
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1

    def join(self, node, client, app):
        """A node that says it is ``client``."""
        self.apps[node] = app
        config = {} if client is None else {"client": client}
        self.contexts[node] = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})

    def get_node_ids(self):
        return list(self.online)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            node, number = message.metadata.dst_node_id, f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            ids.append(number)
            reply = self.apps[node](message, self.contexts[node])
            if node - 1 in self.behave and "order" in message.content:
                changed = self.behave[node - 1](dict(message.content.config_records["order"]), reply.content)
                if changed is None:
                    continue
                reply = Message(changed, reply_to=message)
            self.got.append(reply)
            self._replies[number] = reply
        return ids

    def pull_messages(self, message_ids):
        return [self._replies.pop(m) for m in list(message_ids) if m in self._replies]

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


def said(answer, **changes):
    """The answer with other facts."""
    facts = ConfigRecord({**dict(answer.config_records["said"]), **changes})
    return RecordDict({**dict(answer.items()), "said": facts})
