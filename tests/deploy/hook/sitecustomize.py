"""Nodes that misbehave: put on a node's PYTHONPATH, with HOOK naming a folder of the test.

A file ``CLIENT-ROUND`` there (round from 0) says what that client does when it trains in that round: ``nan`` uploads
NaN; ``shape`` leaves out a row of an array; ``round`` says it was another round; ``boast`` that it has 2·10⁸ samples;
``grown`` uploads a hundred times as much; ``hang`` writes ``CLIENT-ROUND.here`` and waits until the file is gone.

With UNGUARDED the checks that attacks of ``test_liars.py`` meet are lifted, in every process: the SuperLink's gate, the
server's reading of replies and its nonces, the signatures of orders.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

if os.environ.get("HOOK") and "cgpfl.engine.flower.worker" in sys.orig_argv:
    from cgpfl.engine.flower import node

    true = node.Node.work

    class Another:
        """A reply of another round."""

        def __init__(self, reply):
            self.reply, self.upload = reply, reply.upload

        def facts(self):
            return {**self.reply.facts(), "train": 7}

    def work(self, order, message):
        reply = true(self, order, message)
        note = Path(os.environ["HOOK"]) / f"{self.client}-{order.train}"
        what = note.read_text() if note.exists() else ""
        if what == "nan":
            bad = {name: v * float("nan") if v.dtype.kind == "f" else v for name, v in reply.upload.items()}
            return replace(reply, upload=bad)
        if what == "shape":
            return replace(reply, upload={name: v[1:] for name, v in reply.upload.items()})
        if what == "round":
            return Another(reply)
        if what.startswith("boast"):
            reply = replace(reply, samples=2 * 10**8)
        if what.endswith("grown"):
            return replace(reply, upload={name: (v * 100).astype(v.dtype) for name, v in reply.upload.items()})
        if what == "hang":
            note.with_suffix(".here").touch()
            while note.exists():
                time.sleep(0.05)
        return reply

    node.Node.work = work

if os.environ.get("UNGUARDED"):
    program = {Path(argument).name for argument in sys.orig_argv[:4]}
    if "cgpfl.deploy.superlink" in program:
        from cgpfl.deploy import gate

        gate.install = lambda: None
    if "flwr-serverapp" in program:
        from cgpfl.engine.flower import link, pull

        checked = link._answer
        link._answer = lambda content, secret: checked(content, content.config_records["said"].get("nonce"))
        link.pulled = lambda grid, asked, most, seconds: [pull._as_pulled(r) for r in grid.pull_messages(asked)]
    if "flwr-clientapp" in program:
        from cgpfl.deploy import apps

        apps.server_of = lambda app: lambda *about: True
