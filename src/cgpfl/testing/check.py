"""A method is put to the contract, check by check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from cgpfl.algorithms import Algorithm, get_method
from cgpfl.errors import CgpflError
from cgpfl.testing import privacy, running
from cgpfl.testing.suite import ContractError, Suite

CHECKS: dict[str, Callable[[Suite], None]] = {
    "contract": running.contract,
    "deterministic": running.deterministic,
    "loop": running.loop,
    "permutation": running.permutation,
    "absent": running.absent,
    "private": privacy.private,
    "own_data": privacy.own_data,
    "sweep": running.sweep,
    "resume": running.resume,
    "bytes": running.count_bytes,
}
"""The checks by name."""


def check_algorithm(method: Any, *, skip: tuple[str, ...] = ()) -> None:
    """Raise :class:`ContractError` where ``method`` (an object of the contract, or a name) breaks it.

    The checks, in this order; ``skip`` leaves some out by name:

    contract        it has the functions of :class:`cgpfl.Algorithm`, its states keep their shapes, and what
                    is sent is made of plain numbers
    deterministic   the same seed gives the same bits, another seed does not
    loop            all clients in one program = one client after the other
    permutation     listing the clients in another order changes nothing but the order
    absent          a client that does not answer has no influence and keeps its state; a round in which
                    nobody answers changes nothing that is sent
    private         nothing that a client keeps is in its upload (unless the method says it ``reveals``): not
                    scaled, shifted, in another order or shape, a round old, or as the difference to what it was
                    sent; and never its samples or labels
    own_data        what a client does depends on its own training samples and public ones: not on other
                    clients' samples, never on test samples; and its model does depend on its own
    sweep           float hyper-parameters are traced: several settings in one program = one run each
    resume          saved and loaded in the middle = never stopped
    bytes           the bytes counted are those of the arrays sent

    ``private`` finds what is there to be seen, number by number; that an upload tells nothing it does not prove.
    """
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise CgpflError(f"skip: no check {sorted(unknown)[0]!r}; there are {', '.join(CHECKS)}")
    if isinstance(method, str):
        method = get_method(method)
    if isinstance(method, type):
        raise ContractError(f"{method.__name__}: contract: this is a class; give an object, {method.__name__}()")
    name = getattr(method, "name", "") or type(method).__name__
    if not isinstance(method, Algorithm):
        missing = [f for f in vars(Algorithm) if not f.startswith("_") and not hasattr(method, f)]
        raise ContractError(f"{name}: contract: lacks {', '.join(missing)}; see cgpfl.Algorithm")
    if jax.tree_util.all_leaves([method]):
        raise ContractError(f"{name}: contract: JAX does not know its hyper-parameters; use @cgpfl.algorithm")
    suite = Suite(method, name)
    for check, run in CHECKS.items():
        if check not in skip:
            _told(name, check, run, suite)


def _told(name: str, check: str, run: Callable[[Suite], None], suite: Suite) -> None:
    """One check; whatever goes wrong in the method's functions is told in a line, the whole behind it."""
    try:
        with jax.default_matmul_precision("highest"):
            run(suite)
    except ContractError:
        raise
    except Exception as error:
        lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else "no reason given"
        if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):
            reason = f"cannot be traced by JAX: {reason}"
        elif not isinstance(error, CgpflError):
            reason = f"{type(error).__name__}: {reason}"
        raise ContractError(f"{name}: {check}: {reason}") from error
