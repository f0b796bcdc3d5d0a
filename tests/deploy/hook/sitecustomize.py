"""Nodes that misbehave: put on a node's PYTHONPATH, with HOOK naming a folder of the test.

A file ``CLIENT-ROUND`` there (round from 0) says what that client does when it trains in that round: ``nan`` uploads
NaN; ``hang`` writes ``CLIENT-ROUND.here`` and waits until the file is gone.
"""

import os
import sys
import time
from pathlib import Path

if os.environ.get("HOOK") and "cgpfl.engine.flower.worker" in sys.orig_argv:
    from cgpfl.engine.flower import node

    true = node.Node._train

    def train(self, private, message, state, order):
        upload = true(self, private, message, state, order)
        note = Path(os.environ["HOOK"]) / f"{self.client}-{order.train}"
        if not note.exists():
            return upload
        if note.read_text() == "nan":
            return {name: v * float("nan") if v.dtype.kind == "f" else v for name, v in upload.items()}
        note.with_suffix(".here").touch()
        while note.exists():
            time.sleep(0.05)
        return upload

    node.Node._train = train
