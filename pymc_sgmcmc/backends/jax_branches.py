"""Conditionals whose branches JAX computes only where they are taken."""

from __future__ import annotations

from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import apply_ancestors

__all__ = ["INTRODUCED", "take_apart"]

# PyTensor's rewrite with the same effect, which rewrites each branch from the beginning, and
# nested branches once more
INTRODUCED = "introduce_lazy_ifelse"


def take_apart(fgraph: Any) -> None:
    """Move into each conditional's branches what nothing else reads, in place."""
    # From the outputs inwards: a conditional inside a branch goes with it
    for node in reversed(fgraph.toposort()):
        if node not in fgraph.apply_nodes or not isinstance(node.op, IfElse):
            continue
        if (found := _with_branches(fgraph, node)) is not None:
            fgraph.replace_all(list(zip(node.outputs, found, strict=True)), reason="branches")


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
    found = op(node.inputs[0], *read, return_list=True)
    return list(found)


def _read_always(outputs: list[Variable]) -> set[Apply]:
    """Return the nodes that are computed whichever branches the conditionals among them take."""
    found: set[Apply] = set()
    wanted = list(outputs)
    while wanted:
        owner = wanted.pop().owner
        if owner is not None and owner not in found:
            found.add(owner)
            wanted += owner.inputs[:1] if isinstance(owner.op, IfElse) else owner.inputs
    return found


def _branch(inputs: list[Variable], outputs: list[Variable]) -> OpFromGraph:
    branch = OpFromGraph(inputs, outputs, on_unused_input="ignore")
    inner = branch.fgraph.unfreeze()
    take_apart(inner)
    return branch.clone_with_inner_graph(inner)
