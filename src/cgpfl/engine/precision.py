"""How exactly the clients' matrix products are computed.

"default" is JAX's own: float32 on a CPU; on an NVIDIA GPU that has it tf32, which rounds the inputs of a product to
10 bits of mantissa; sums are float32 everywhere. "float32" rounds nothing on any device. "tf32" and "bfloat16"
(7 bits) are computed as such by an accelerator; on a CPU the inputs are rounded and the product is float32's: nothing
gets faster, but what it does to a model can be seen on any machine. Parameters, sums and all that is no product
stay float32, and so does the server's step.

Why a program is read and rewritten here, product by product: JAX's own setting does not round. On a CPU (JAX 0.10)
``jax.default_matmul_precision("bfloat16")`` and ``"tensorfloat32"`` change no bit, and dot algorithms such as
``BF16_BF16_F32`` and ``TF32_TF32_F32`` are refused; on a GPU "bfloat16" means tf32, and algorithms are for
``dot_general`` alone, not for convolutions. Where the setting does the job ("float32", tf32 on a GPU), it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p

PRECISIONS = ("default", "float32", "tf32", "bfloat16")
MANTISSA = {"tf32": 10, "bfloat16": 7}
"""Bits kept of an input's mantissa; float32 has 23."""
LOOPS = ("scan", "while", "cond")
CALLS = {
    **dict.fromkeys(("jit", "pjit", "remat", "remat2", "checkpoint"), ("jaxpr",)),
    **dict.fromkeys(("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), ("call_jaxpr",)),
    "custom_vjp_call_jaxpr": ("fun_jaxpr", "call_jaxpr"),
    "custom_vmap_call": ("call",),
}
"""Steps that are another program, and under which name they hold it (in one version of JAX or another)."""


def computed(f: Callable[..., Any], precision: str) -> Callable[..., Any]:
    """``f`` with its products, those in loops and gradients included, computed in a ``precision``."""
    if precision == "default":
        return f
    on_cpu = jax.default_backend() == "cpu"
    if precision == "float32" or (precision == "tf32" and not on_cpu):
        with_setting: Callable[..., Any] = jax.default_matmul_precision(
            "highest" if precision == "float32" else "tensorfloat32"
        )(f)
        return with_setting

    def narrow(x: Array) -> Array:
        if x.dtype != jnp.float32:
            return x
        return jax.lax.reduce_precision(x, 8, MANTISSA[precision]) if on_cpu else x.astype(jnp.bfloat16)

    def rounded(*args: Any) -> Any:
        program, shape = jax.make_jaxpr(f, return_shape=True)(*args)
        found = _evaluated(program.jaxpr, program.consts, jax.tree.leaves(args), narrow)
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return rounded


def _evaluated(program: Jaxpr, consts: Any, args: Any, narrow: Callable[[Array], Array]) -> list[Any]:
    """What a traced program computes, the inputs of its products made ``narrow``.

    A product for which the method itself asks a precision is left as it is.
    """
    known: dict[Any, Any] = dict(zip((*program.constvars, *program.invars), (*consts, *args), strict=True))

    def value(of: Any) -> Any:
        return of.val if isinstance(of, Literal) else known[of]

    for step in program.eqns:
        inputs, params = [value(v) for v in step.invars], step.params
        if step.primitive in (dot_general_p, conv_general_dilated_p) and params["precision"] is None:
            aval: Any = step.outvars[0].aval
            params = params | {"preferred_element_type": aval.dtype}
            outputs = step.primitive.bind(*map(narrow, inputs), **params)
        elif step.primitive.name in CALLS:
            inner = next(p for name in CALLS[step.primitive.name] if (p := params.get(name)) is not None)
            body, held = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
            outputs = _evaluated(body, held, inputs, narrow)
        else:
            if step.primitive.name in LOOPS:
                params = {name: _rewritten(param, narrow) for name, param in params.items()}
            outputs = step.primitive.bind(*inputs, **params)
        known.update(zip(step.outvars, outputs if step.primitive.multiple_results else [outputs], strict=True))
    return [value(v) for v in program.outvars]


def _rewritten(param: Any, narrow: Callable[[Array], Array]) -> Any:
    """A parameter of a loop or a branch, with the programs in it treated likewise."""
    if isinstance(param, tuple) and all(isinstance(p, ClosedJaxpr) for p in param):
        return tuple(_rewritten(p, narrow) for p in param)
    if not isinstance(param, ClosedJaxpr):
        return param
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in param.jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _evaluated(param.jaxpr, param.consts, args, narrow))(*shapes)
