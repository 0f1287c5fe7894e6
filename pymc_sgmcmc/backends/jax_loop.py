"""A loop that JAX compiles as its own, without PyTensor's rewrites of loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pytensor.compile.mode import optdb
from pytensor.compile.rewriting import rewrite_inner_graph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import graph_rewriter
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, Shape_i
from pytensor.tensor.type import tensor

from pymc_sgmcmc.backends.jax_missing import INTRODUCED, take_apart
from pymc_sgmcmc.backends.placing import on_processor
from pymc_sgmcmc.backends.workarounds import slow_rewrites

# Numbers of a step's largest array, over all steps that a GPU runs in parallel
_SIDE_BY_SIDE = 2**26

# Reading the results of these takes longer than computing them again
_CHEAP = Alloc, MakeVector, Reshape, Shape_i


class Loop(Op, HasInnerGraph):
    """Steps that carry a state on, as ``jax.lax.scan``; PyTensor's Scan is rewritten many times.

    Inputs of it and of the step ``fgraph`` are sequences, states, then what is fixed; outputs are
    the states, then what a step computes beside them, along a new first dimension. ``settled`` is a
    graph of states before and after ``in_a_row`` steps: the states that the next steps begin with.
    """

    __props__ = ("fgraph", "sequences", "states", "length", "types", "in_a_row", "settled")

    def __init__(
        self,
        fgraph: AbstractFunctionGraph,
        sequences: int,
        states: int,
        length: int,
        types: tuple[Any, ...],
        in_a_row: int = 1,
        settled: AbstractFunctionGraph | None = None,
    ) -> None:
        self.fgraph = fgraph.freeze() if isinstance(fgraph, FunctionGraph) else fgraph
        self.sequences, self.states = sequences, states
        self.length, self.types = length, types
        self.in_a_row = in_a_row
        self.settled = settled.freeze() if isinstance(settled, FunctionGraph) else settled

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.length}}}"

    def make_node(self, *inputs: Variable) -> Apply:
        """Return the node of a loop over these inputs."""
        return Apply(self, list(inputs), [t() for t in self.types])

    def clone_with_inner_graph(self, fgraph: AbstractFunctionGraph) -> Loop:
        """Return a loop of other steps."""
        further = self.length, self.types, self.in_a_row, self.settled
        return type(self)(fgraph, self.sequences, self.states, *further)

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Refuse: only JAX runs it."""
        raise NotImplementedError("This loop is JAX's.")


def loop(
    graphs: Sequence[Any],
    steps: Mapping[Any, Any],
    states: Mapping[Any, Any],
    fixed: Mapping[Any, Any],
    length: int,
    in_a_row: int = 1,
    settled: Callable[[Sequence[Any], Sequence[Any]], list[Any]] | None = None,
) -> list[Any]:
    """Return the states after the last step, then the other outputs of each step.

    ``graphs`` are the next states and other outputs, as functions of placeholders, which ``steps``,
    ``states`` and ``fixed`` map to values: in all steps, before the first one, and in each the
    same. ``settled`` makes of symbols of the states before and after ``in_a_row`` steps those that
    the next steps begin with.
    """
    n = len(states)
    types = [
        *(symbol.type for symbol in states),
        *(tensor(dtype=x.dtype, shape=(length, *x.type.shape)).type for x in graphs[n:]),
    ]
    step = FunctionGraph([*steps, *states, *fixed], list(graphs), clone=True)
    after = None
    if settled is not None:
        before, end = ([x.type() for x in states] for _ in range(2))
        after = FunctionGraph([*before, *end], settled(before, end), clone=True)
    op = Loop(step, len(steps), n, length, tuple(types), in_a_row, after)
    outputs: Any = op(*steps.values(), *states.values(), *fixed.values(), return_list=True)
    return list(outputs)


def funcified(op: Loop, **kwargs: Any) -> Callable[..., Any]:
    """Return the loop as a function of JAX arrays."""
    import jax

    from pytensor.link.jax.dispatch import jax_funcify

    one = jax_funcify(op.fgraph, **kwargs)
    first, second = op.sequences, op.sequences + op.states
    dtypes = [t.dtype for t in op.types]

    def computed(elements: Any, carry: Any, fixed: Any) -> list[Any]:
        """Return a step's outputs as arrays: a constant is a number of Python."""
        outputs = one(*elements, *carry, *fixed)
        return [jax.numpy.asarray(x, t) for x, t in zip(outputs, dtypes, strict=True)]

    def in_groups(step: Any, carry: Any, sequences: Any) -> Any:
        """Make steps in a row, settle, and so on; the last ones may be fewer."""
        settled = jax_funcify(op.settled, **kwargs)

        def group(count: int, first: Any, begin: Any) -> Any:
            carry = begin
            for i in range(count):
                elements = [jax.lax.dynamic_index_in_dim(x, first + i, 0, False) for x in sequences]
                carry, _ = step(carry, elements)
            return list(settled(*begin, *carry))

        groups, left = divmod(op.length, op.in_a_row)
        if groups:
            carry = jax.lax.fori_loop(
                0, groups, lambda i, carry: group(op.in_a_row, i * op.in_a_row, carry), carry
            )
        return group(left, op.length - left, carry) if left else carry

    def loop(*inputs: Any) -> Any:
        sequences, carry, fixed = list(inputs[:first]), list(inputs[first:second]), inputs[second:]
        if not op.states and not on_processor("jax"):
            # Steps do not depend on each other: a GPU makes several at once
            each = jax.lax.map(
                lambda elements: computed(elements, [], fixed),
                sequences,
                batch_size=_side_by_side(op),
            )
        else:

            def step(carry: Any, elements: Any) -> Any:
                outputs = computed(elements, carry, fixed)
                return outputs[: op.states], outputs[op.states :]

            if op.settled is None:
                carry, each = jax.lax.scan(step, carry, sequences, length=op.length)
            else:
                carry, each = in_groups(step, carry, sequences), []
        outputs = (*carry, *each)
        # As PyTensor has it
        return outputs if len(outputs) > 1 else outputs[0]

    return loop


def _side_by_side(op: Loop) -> int:
    """Return how many steps run at once where the device computes many numbers in parallel."""
    arrays = [x.type.shape for node in op.fgraph.toposort() for x in node.outputs]
    largest = max((int(np.prod(shape)) for shape in arrays if None not in shape), default=1)
    return int(np.clip(_SIDE_BY_SIDE // max(largest, 1), 1, op.length))


@graph_rewriter
def _rewrite_steps(fgraph: Any) -> None:
    rewrite_inner_graph(fgraph, lambda op: isinstance(op, Loop), _rewritten)
    for node in fgraph.toposort():
        if isinstance(node.op, Loop) and (outputs := _with_less_to_do(node)) is not None:
            fgraph.replace_all(list(zip(node.outputs, outputs, strict=True)), reason="once for all")


def _rewritten(linker: Any, op: Any, node: Any, inner: Any, *, mode: Any) -> None:
    mode.excluding(INTRODUCED, *slow_rewrites(inner.outputs)).optimizer.rewrite(inner)
    take_apart(inner)


# Where PyTensor rewrites what is in its own operations that hold graphs
optdb.register("sgmcmc_loop", _rewrite_steps, "fast_run", position=49.6)


def _is_cheap(op: Op) -> bool:
    # A matrix is copied to transpose it
    if isinstance(op, DimShuffle):
        return bool(np.all(np.diff(op.shuffle) > 0))
    return isinstance(op, _CHEAP)


def _with_less_to_do(node: Apply) -> list[Variable] | None:
    """Return the outputs of a loop with its constant computations before it, or None without any.

    XLA leaves some in the loop, such as copies of transposed matrices.
    """
    op, inner = node.op, node.op.fgraph.unfreeze()
    order = inner.toposort()
    varying = set(inner.inputs[: op.sequences + op.states])
    for step in order:
        if varying.intersection(step.inputs):
            varying.update(step.outputs)
    # In their order, as what is compiled must be the same again
    same: dict[Variable, None] = {}
    wanted = [x for step in order if varying.intersection(step.outputs) for x in step.inputs]
    wanted += inner.outputs
    while wanted:
        x = wanted.pop()
        if x.owner is None or x in varying:
            continue
        if _is_cheap(x.owner.op):
            wanted += x.owner.inputs
        else:
            same[x] = None
    if not same:
        return None
    outside = dict(zip(inner.inputs, node.inputs, strict=True))
    before = clone_replace(list(same), outside, rebuild_strict=False)
    further = [x.type() for x in same]
    outputs = clone_replace(inner.outputs, dict(zip(same, further, strict=True)))
    step = FunctionGraph([*inner.inputs, *further], outputs, clone=True)
    return op.clone_with_inner_graph(step).make_node(*node.inputs, *before).outputs
