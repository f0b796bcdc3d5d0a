"""Engines made ready beside the rounds of earlier ones: their programs are compiled, or loaded, in other threads.

XLA compiles a program on one core, and a program that was kept waits for the disk and for the linker; rounds of another
method can run meanwhile. One thread takes engines from the front, one from the back, where the long ones are; what
neither has begun when its turn comes is made where it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import jax

from cgpfl.engine.cache import use_compilation_cache
from cgpfl.engine.kept import keeps_programs
from cgpfl.engine.simulation import Simulation

MOST_SAMPLES = 1 << 26
"""Bytes of samples of all engines up to which they are made ahead: each of them may hold a copy."""

HEAD_START = 1.0
"""Seconds that the first engine has for itself: its first round is what is waited for."""
Make = Callable[[], Any]


@contextmanager
def ahead(makers: Sequence[Make | None], samples: int) -> Iterator[Callable[[int], Any]]:
    """A function that gives engine i, once, or None: then it is to be made when it is needed.

    ``makers``: None for what is finished already. ``samples``: bytes of an engine's. Only for the command line and on a
    CPU: in Python the caller's settings of JAX may be those of its thread.
    """
    engines: dict[int, Future[Any]] = {i: Future() for i, make in enumerate(makers) if make is not None}
    waiting, lock = list(engines), threading.Lock()
    large = samples * len(waiting) > MOST_SAMPLES
    alone = len(waiting) < 2 or large or not keeps_programs() or jax.default_backend() != "cpu"
    if alone or not use_compilation_cache():  # without it they would be compiled again
        yield lambda i: None
        return

    def claimed(end: int) -> int | None:
        with lock:
            return waiting.pop(end) if waiting else None

    def work(end: int) -> None:
        others.wait(HEAD_START)
        while (i := claimed(end)) is not None:
            engines[i].set_result(_ready(makers[i]))

    def engine(i: int) -> Any:
        if i != first and makers[i] is not None:
            others.set()
        with lock:
            if i in waiting:
                waiting.remove(i)
                del engines[i]
        if i not in engines:
            return None
        made = engines[i].result()
        del engines[i]
        return made

    first, others = waiting.pop(0), threading.Event()  # the first is asked for at once, and made there
    del engines[first]
    threads = [threading.Thread(target=work, args=(end,), name=f"ahead {end}") for end in (0, -1)]
    for thread in threads:
        thread.start()
    try:
        yield engine
    finally:
        with lock:
            waiting.clear()
        others.set()
        for thread in threads:
            thread.join()


def _ready(make: Make | None) -> Any:
    """An engine whose programs are there; None if something is wrong with it, which is said when it runs."""
    try:
        engine = make() if make is not None else None
        if isinstance(engine, Simulation):
            engine.prepare()
        return engine
    except BaseException:  # who waits for it must be answered, whatever it was
        return None
