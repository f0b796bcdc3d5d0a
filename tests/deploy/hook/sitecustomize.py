"""Nodes and servers that misbehave: put on a process's PYTHONPATH, with HOOK naming a folder of the test.

A file ``CLIENT-ROUND`` there (round from 0) says what that client does when it trains in that round: ``nan`` uploads
NaN; ``shape`` leaves out a row of an array; ``round`` says it was another round; ``boast`` that it has 2·10⁸ samples;
``grown`` uploads a hundred times as much; ``far`` chooses a context that there is not; ``shout N`` answers with an
error of escape sequences, another line and N letters; ``hang`` writes its upload to ``CLIENT-ROUND.here`` and waits
until the file is gone. A file ``die`` ends the server, as by ``kill -9``, when it has written records and no state yet.

AHEAD: seconds that this process's clock is ahead. MISSING: packages that are not installed. ORPHANED: nobody tells
this process that it is to end with its parent.

With UNGUARDED the checks that attacks of ``test_liars.py`` and ``test_intruders.py`` meet are lifted, in every process:
the SuperLink's gate and who may read its files; the server's reading of replies and its nonces, whose key a node has,
contexts that are chosen, what is made of nodes' words, which records a state counts; the signatures of orders; what a
node says of a full disk; what the command line looks at before it starts Flower, and that it is ours.
"""

import datetime
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

program = {Path(argument).name for argument in sys.orig_argv[:4]}
hook, unguarded = os.environ.get("HOOK"), os.environ.get("UNGUARDED")

if ahead := float(os.environ.get("AHEAD", 0)):
    from flwr.supercore import date

    true_time, true_now = time.time, date.now
    time.time = lambda: true_time() + ahead
    date.now = lambda: true_now() + datetime.timedelta(seconds=ahead)

for name in os.environ.get("MISSING", "").split():
    sys.modules[name] = None

if os.environ.get("ORPHANED"):
    os.environ.pop("CGPFL_PARENT", None)

if hook and "cgpfl.engine.flower.worker" in sys.orig_argv:
    from cgpfl.engine.flower import node
    from cgpfl.engine.flower.orders import RefusedError

    true = node.Node.work
    EVIL = "\x1b]0;owned\x07\x1b[2J\nround 9: all is well\n"

    class Another:
        """A reply of another round."""

        def __init__(self, reply):
            self.reply, self.upload = reply, reply.upload

        def facts(self):
            return {**self.reply.facts(), "train": 7}

    def work(self, order, message):
        note = Path(hook) / f"{self.client}-{order.train}"
        what = note.read_text() if note.exists() else ""
        if what.startswith("shout"):
            raise RefusedError(EVIL + "x" * int(what.split()[1]))
        reply = true(self, order, message)
        if what == "nan":
            bad = {name: v * float("nan") if v.dtype.kind == "f" else v for name, v in reply.upload.items()}
            return replace(reply, upload=bad)
        if what == "shape":
            return replace(reply, upload={name: v[1:] for name, v in reply.upload.items()})
        if what == "round":
            return Another(reply)
        if what == "far":
            return replace(reply, upload={k: v * 0 + 7 if k.endswith("choice") else v for k, v in reply.upload.items()})
        if what.startswith("boast"):
            reply = replace(reply, samples=2 * 10**8)
        if what.endswith("grown"):
            return replace(reply, upload={name: (v * 100).astype(v.dtype) for name, v in reply.upload.items()})
        if what == "hang":
            note.with_suffix(".here").write_bytes(b"".join(v.tobytes() for v in reply.upload.values()))
            while note.exists():
                time.sleep(0.05)
        return reply

    node.Node.work = work

if hook and "flwr-serverapp" in program:
    from cgpfl.experiment import checkpoint

    saved = checkpoint.save_arrays

    def save_arrays(path, *content):
        saved(path, *content)
        note = Path(hook) / "die"
        if path.name.startswith("records-") and note.exists():
            note.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save_arrays = save_arrays

if unguarded and "cgpfl.deploy.superlink" in program:
    from cgpfl.deploy import gate

    gate.install = lambda: None
    os.umask(0o022)
    os.umask = lambda mask: 0o022

if unguarded and "flwr-serverapp" in program:
    from cgpfl.deploy import server
    from cgpfl.engine.flower import link, pull
    from cgpfl.engine.flower import server as rounds
    from cgpfl.experiment import checkpoint

    checked = link._answer
    link._answer = lambda content, secret: checked(content, content.config_records["said"].get("nonce"))
    link.pulled = lambda grid, asked, most, seconds: [pull._as_pulled(r) for r in grid.pull_messages(asked)]
    link.cleaned = server.cleaned = rounds.cleaned = lambda text, most=0: str(text)
    server.membership = lambda grid, keys: None
    rounds.check_choice = lambda arrays, contexts: None

    def all_files(self, count):
        """Every record that is there, as it was read once."""
        records, files = checkpoint.Records(), sorted(self.path.glob("records-*.safetensors"), key=checkpoint._number)
        for values, of in (checkpoint.load_checkpoint(file, "rounds") for file in files):
            records.add(of["rounds"], values)
        if len(records.rounds) != count:
            raise checkpoint.DamagedError(f"checkpoint {self.path}: has {len(records.rounds)} of {count} records")
        return files, records

    checkpoint.MethodFolder._files = all_files

if unguarded and "flwr-clientapp" in program:
    from cgpfl.deploy import apps

    apps.server_of = lambda app: lambda *about: True

if unguarded and "cgpfl.engine.flower.worker" in sys.orig_argv:
    from cgpfl.deploy import node as loading

    load = loading.load_node

    def unsaid(call, *arguments):
        """An error of the disk is any other."""
        try:
            return call(*arguments)
        except OSError as error:
            raise RuntimeError from error

    loading.load_node = lambda facts: SimpleNamespace(work=lambda *asked: unsaid(unsaid(load, facts).work, *asked))

if unguarded and "cgpfl.cli" in program:
    from cgpfl.deploy import preflight, processes

    made = processes.supernode

    def supernode(**facts):
        """Flower's own program."""
        process = made(**facts)
        process.command[:3] = [processes.program("flower-supernode")]
        return process

    processes.supernode = supernode
    for name in ("check_extras", "check_data", "check_port", "check_clock"):
        setattr(preflight, name, lambda *about: None)
