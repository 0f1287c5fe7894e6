"""What PyTensor and PyMC lack for JAX, or have in a slow form: used while a graph is compiled.

``tests/backends/test_jax_missing.py`` has a test for each part that fails when it can go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from pymc.distributions.dist_math import SplineWrapper
from pytensor.compile.builders import OpFromGraph
from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import apply_ancestors
from pytensor.scalar import Softplus
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import Ive
from scipy.special import gammaln

from pymc_sgmcmc.backends.placing import on_device


@contextmanager
def completed() -> Generator[None]:
    """Have PyTensor compile these operations for JAX by the functions of this module."""
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.link.jax.dispatch.basic import jax_typify

    served: list[tuple[Any, type, Callable[..., Any]]] = [(jax_typify, np.ndarray, _constant)]
    served += [(jax_funcify, kind, function) for kind, function in _OPERATIONS.items()]
    usual = [registry.dispatch(kind) for registry, kind, _ in served]
    for (registry, kind, function), before in zip(served, usual, strict=True):
        registry.register(kind)(partial(function, before))
    try:
        yield
    finally:
        for (registry, kind, _), before in zip(served, usual, strict=True):
            registry.register(kind)(before)


# Each function gets the one that it stands in for, to hand on what it does not know


def _constant(usual: Any, data: np.ndarray, **kwargs: Any) -> Any:
    """Copy a constant: PyTensor has JAX compile a program for every shape, with the same result."""
    return on_device(data) if data.ndim else data.item()


def _softplus(usual: Any, op: Softplus, **kwargs: Any) -> Callable[..., Any]:
    """Return a softplus that XLA vectorises.

    PyTensor's takes three exponentials and a logarithm of single numbers, five times as long. Here
    log(1 + e) is 2 artanh(e / (2 + e)), whose series is exact to the last digit where e ≤ 1.
    """
    import jax.numpy as jnp

    def softplus(x: Any) -> Any:
        e = jnp.exp(-jnp.abs(x))
        s = e / (2 + e)
        q, series = s * s, jnp.zeros_like(s)
        for k in range(29, 0, -2):
            series = series * q + 1 / k
        return jnp.maximum(x, 0) + 2 * s * series

    return softplus


def _scalar_loop(usual: Any, op: ScalarLoop, **kwargs: Any) -> Callable[..., Any]:
    """Return a loop over numbers, for all elements of arrays at once.

    Derivatives of incomplete gamma and beta functions are such loops over a series. An element
    stays as it is once its stopping condition holds or it is NaN, while others go on. Derivatives
    of 2F1, a subclass, are left to numba: few elements take thousands of steps while all others
    wait.
    """
    if type(op) is not ScalarLoop:
        return usual(op, **kwargs)
    import jax
    import jax.numpy as jnp

    from pytensor.link.jax.dispatch import jax_funcify

    one = jax_funcify(op.fgraph)
    n = len(op.outputs) - op.is_while
    dtypes = [t.dtype for t in op.outputs_type[:n]]

    def loop(*inputs: Any) -> Any:
        n_steps, *arrays = jnp.broadcast_arrays(*inputs)
        fixed = arrays[n:]

        def step(state: Any) -> Any:
            k, goes_on, ended, carry = state
            *new, end = one(*carry, *fixed) if op.is_while else (*one(*carry, *fixed), False)
            new = [jnp.where(goes_on, x, was) for x, was in zip(new, carry, strict=True)]
            new = [x.astype(was.dtype) for x, was in zip(new, carry, strict=True)]
            ended = jnp.where(goes_on, end, ended)
            # A NaN stays NaN, and its loop would never end
            lost = sum((jnp.isnan(x) for x in new), start=jnp.zeros_like(ended))
            return k + 1, (k + 1 < n_steps) & ~ended & ~lost, ended, new

        start = [jnp.asarray(x, t) for x, t in zip(arrays[:n], dtypes, strict=True)]
        goes_on = jnp.asarray(n_steps > 0)
        # A loop of no steps has not failed to end
        ended = ~goes_on if op.is_while else jnp.zeros_like(goes_on)
        *_, ended, last = jax.lax.while_loop(
            lambda state: state[1].any(), step, (0, goes_on, ended, start)
        )
        outputs = [*last, ended] if op.is_while else last
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return loop


# The expansion of a Bessel function in 1/x is taken from this x, and a quarter of the squared
# order, on; it has so many terms
_FROM, _TERMS = 40.0, 40
# For larger orders the power series has thousands of terms for each element
_LARGEST_ORDER = 128


def _bessel(usual: Any, op: Ive, node: Any = None, **kwargs: Any) -> Callable[..., Any]:
    """Return I_v(x) exp(-|x|) for a known, whole v of at most 128: PyTensor needs a nightly build.

    For small x the power series (Abramowitz and Stegun, 1964, 9.6.10), whose terms have one sign,
    so that small values keep their relative precision; for large x the expansion in 1/x (9.7.1).
    """
    order = None if node is None else node.inputs[0]
    whole = np.asarray(order.data, float) if isinstance(order, Constant) else np.array(np.nan)
    if not np.all((whole == np.rint(whole)) & (np.abs(whole) <= _LARGEST_ORDER)):
        return usual(op, node=node, **kwargs)
    # The sign of a whole order does not matter
    v = np.abs(whole)[..., None]
    largest = float(max(v.max(initial=0.0) ** 2 / 4, _FROM))
    # The largest term is near x / 2: those from here on are below the last digit
    k = np.arange(int(1.4 * largest + 3 * np.sqrt(largest) + 30))
    of_series = -gammaln(k + 1) - gammaln(v + k + 1)
    j = np.arange(1, _TERMS)
    of_expansion = np.cumprod(
        np.concatenate([np.ones_like(v), ((2 * j - 1) ** 2 - 4 * v**2) / (8 * j)], axis=-1), axis=-1
    )

    def bessel(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        x = jnp.asarray(x)[..., None]
        size, types = jnp.abs(x), x.dtype
        small = jnp.clip(size, 4 * np.finfo(types).tiny, largest)
        powers = jnp.asarray(v + 2 * k, types) * jnp.log(small / 2)
        series = jnp.exp(powers + jnp.asarray(of_series, types) - small).sum(axis=-1)
        large = jnp.maximum(size, largest)
        expansion = (jnp.asarray(of_expansion, types) * large ** -np.arange(_TERMS)).sum(axis=-1)
        expansion = expansion / jnp.sqrt(2 * np.pi * large[..., 0])
        sign = jnp.where((x[..., 0] < 0) & (v[..., 0] % 2 == 1), -1, 1)
        return sign * jnp.where(size[..., 0] < largest, series, expansion)

    return bessel


# What SciPy's splines do outside their points
_EXTRAPOLATES, _ZEROS, _KEEPS = 0, 1, 3


def _spline(usual: Any, op: SplineWrapper, **kwargs: Any) -> Callable[..., Any]:
    """Return a SciPy spline, as of `pm.Interpolated`, unless it raises outside its points."""
    spline = op.spline
    if spline.ext not in (_EXTRAPOLATES, _ZEROS, _KEEPS):
        return usual(op, **kwargs)
    knots, _, degree = spline._eval_args
    # Loaded late: few models have a spline
    from scipy.interpolate import PPoly

    coefficients = PPoly.from_spline(spline._eval_args).c
    # The knots at both ends are repeated
    first, last = degree, len(knots) - degree - 2
    lower, upper = knots[first], knots[last + 1]

    def value_at(x: Any) -> Any:
        import jax.numpy as jnp

        x = jnp.asarray(x)
        places, c = jnp.asarray(knots, x.dtype), jnp.asarray(coefficients, x.dtype)
        inside = (x >= lower) & (x <= upper)
        at = jnp.clip(x, lower, upper) if spline.ext == _KEEPS else x
        k = jnp.clip(jnp.searchsorted(places, at, side="right") - 1, first, last)
        value = jnp.zeros_like(x)
        for row in range(degree + 1):
            value = value * (at - places[k]) + c[row, k]
        return jnp.where(inside, value, 0) if spline.ext == _ZEROS else value

    return value_at


_OPERATIONS: dict[type, Callable[..., Any]] = {
    Softplus: _softplus,
    ScalarLoop: _scalar_loop,
    Ive: _bessel,
    SplineWrapper: _spline,
}

# ----------------------------------------------------------------------------- conditionals

# PyTensor's rewrite with the effect of `take_apart`, which rewrites each branch from the
# beginning, and nested branches once more
INTRODUCED = "introduce_lazy_ifelse"


def take_apart(fgraph: Any) -> None:
    """Move into each conditional's branches what nothing else reads, in place."""
    # From the outputs inwards: a conditional inside a branch goes with it
    for node in reversed(fgraph.toposort()):
        if node not in fgraph.apply_nodes or not isinstance(node.op, IfElse):
            continue
        if (outputs := _with_branches(fgraph, node)) is not None:
            fgraph.replace_all(list(zip(node.outputs, outputs, strict=True)), reason="branches")


def _with_branches(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Return the outputs of a conditional that holds its branches, None where there are none."""
    n = node.op.n_outs
    branches = node.inputs[1 : 1 + n], node.inputs[1 + n :]
    always = set.intersection(*(_read_always(outputs) for outputs in branches))
    reached = set(apply_ancestors(node.inputs[1:]))
    inside: dict[Apply, None] = {}
    for step in reversed(fgraph.toposort()):
        clients = [client for x in step.outputs for client in fgraph.clients[x]]
        if (
            step in reached
            and step not in always
            and all((c is node and i > 0) or c in inside for c, i in clients)
        ):
            inside[step] = None
    if not inside:
        return None
    # In their order, as what is compiled must be the same again
    read = dict.fromkeys(
        x
        for x in [*(x for step in inside for x in step.inputs), *node.inputs[1:]]
        if x.owner not in inside and not isinstance(x, Constant)
    )
    ops = [_branch(list(read), outputs) for outputs in branches]
    op: Any = LazyIfElse(*ops, [x.type for x in node.outputs])  # type: ignore[call-arg]
    return list(op(node.inputs[0], *read, return_list=True))


def _read_always(outputs: list[Variable]) -> set[Apply]:
    """Return the nodes that are computed whichever branches the conditionals among them take."""
    nodes: set[Apply] = set()
    wanted = list(outputs)
    while wanted:
        owner = wanted.pop().owner
        if owner is not None and owner not in nodes:
            nodes.add(owner)
            wanted += owner.inputs[:1] if isinstance(owner.op, IfElse) else owner.inputs
    return nodes


def _branch(inputs: list[Variable], outputs: list[Variable]) -> OpFromGraph:
    branch = OpFromGraph(inputs, outputs, on_unused_input="ignore")
    inner = branch.fgraph.unfreeze()
    take_apart(inner)
    return branch.clone_with_inner_graph(inner)
