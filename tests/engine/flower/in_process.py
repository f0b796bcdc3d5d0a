"""A federation on Flower's own messages, without network: a Grid that calls the client apps itself."""

from __future__ import annotations

import dataclasses

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from cgpfl.data import FederatedData, Table
from cgpfl.engine.flower.apps import client_app
from cgpfl.engine.flower.node import Node


def only(data, i):
    """Client ``i`` of a federation as a federation of one: its own samples, nobody else's."""
    parts = [t.parts()[i] for t in (data.train, data.test)]
    rows = np.concatenate(parts)
    first = np.arange(len(parts[0]))
    return FederatedData(
        data.x[rows],
        data.y[rows],
        data.classes,
        Table.of([first]),
        Table.of([np.arange(len(first), len(rows))]),
        scale=data.scale,
        shift=data.shift,
    )


class Here(Grid):
    """Nodes in this process. ``behave[node](message, answer)`` may change or lose an answer (None)."""

    def __init__(self, data, model, methods, folder, *, seed=0, behave=None):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = (
            1,
            0,
            1,
        )  # as in a ServerApp
        self.online = list(range(1, data.clients + 1))
        self.behave = behave or {}
        self.apps, self.contexts, self.sent, self._replies = {}, {}, [], {}
        for node in self.online:
            client = node - 1

            def node_of(context, label, client=client):
                one = only(data, client)
                return Node(methods[label], model, one, client, data.clients, seed, folder / str(client))

            self.apps[node] = client_app(node_of)
            config = {"client": client}
            self.contexts[node] = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})

    def set_run(self, run): ...

    @property
    def run(self):
        return None

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.online)

    def push_messages(self, messages):
        ids = []
        for n, message in enumerate(messages):
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"{len(self.sent)}-{n}"
            self.sent.append(message)
            ids.append(message.metadata.message_id)
            answer = self.apps[node](message, self.contexts[node])
            if node in self.behave:
                answer = self.behave[node](message, answer)
            if answer is not None:
                answer.metadata.__dict__["_src_node_id"] = node
                self._replies[ids[-1]] = answer
        return ids

    def pull_messages(self, message_ids):
        return [self._replies.pop(m) for m in list(message_ids) if m in self._replies]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


def replaced(answer: Message, **records):
    """The answer with some records changed."""
    content = RecordDict({**dict(answer.content), **records})
    new = Message(content, reply_to=answer)
    new.metadata.__dict__.update(answer.metadata.__dict__)
    return new


__all__ = ["Here", "dataclasses", "only", "replaced"]
