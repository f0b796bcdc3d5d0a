"""Nodes that misbehave: put on a node's PYTHONPATH, with HOOK naming a folder of the test.

A file ``CLIENT-ROUND`` there (round from 0) says what that client does when it trains in that round: ``nan`` uploads
NaN; ``shape`` leaves out a row of an array; ``round`` says it was another round; ``hang`` writes ``CLIENT-ROUND.here``
and waits until the file is gone.
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
        if what == "hang":
            note.with_suffix(".here").touch()
            while note.exists():
                time.sleep(0.05)
        return reply

    node.Node.work = work
