"""What JAX's loop leaves to be done once, before it."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.conditional import ifelse

from pymc_sgmcmc.backends import jax_loop
from pymc_sgmcmc.backends.jax_backend import prepare
from pymc_sgmcmc.backends.jax_loop import Loop, loop


def rewritten(graph, inputs):
    """Return the operations before the loop and those of its steps, by name."""
    pytest.importorskip("jax")
    prepare()
    fgraph = pytensor.function(inputs, graph, mode="JAX").maker.fgraph
    [op] = [node.op for node in fgraph.apply_nodes if isinstance(node.op, Loop)]
    return [
        {str(getattr(node.op, "scalar_op", node.op)) for node in nodes}
        for nodes in (fgraph.apply_nodes, op.fgraph.apply_nodes)
    ]


def test_what_is_the_same_in_all_steps_is_computed_once():
    x, state = pt.vector("x", shape=(3,)), pt.vector("state", shape=(3,))
    matrix, rows = pt.matrix("matrix", shape=(3, 3)), pt.matrix("rows", shape=(5, 3))
    scale = pt.scalar("scale")
    graph = matrix.T @ state + x * pt.sqrt(scale)
    found = loop([graph], {x: rows}, {state: state}, {matrix: matrix, scale: scale}, 5)
    before, steps = rewritten(found, [rows, state, matrix, scale])
    assert {"sqrt", "MatrixTranspose"} <= before
    assert not {"sqrt", "MatrixTranspose"} & steps
    assert "Dot" in steps - before


def test_its_steps_are_simplified():
    x, state = pt.scalar("x"), pt.scalar("state")
    steps = pt.vector("steps", shape=(5,))
    _, within = rewritten(
        loop([state + pt.log(1 + pt.exp(x))], {x: steps}, {state: state}, {}, 5), [steps, state]
    )
    assert "Softplus" in within


def test_loops_of_the_same_steps_are_the_same():
    def made():
        x, state, steps = pt.scalar(), pt.scalar(), pt.vector(shape=(5,))
        [found] = loop([state + x], {x: steps}, {state: state}, {}, 5)
        return found.owner.op

    assert made() == made() and hash(made()) == hash(made())
    assert str(made()) == "Loop{5}"
    with pytest.raises(NotImplementedError):
        made().perform(None, [np.zeros(5), 0.0], [[None]])


@pytest.mark.parametrize("largest", [2**26, 12, 1])
def test_a_gpu_makes_independent_steps_side_by_side(largest, monkeypatch):
    pytest.importorskip("jax")
    prepare()
    x, matrix = pt.vector("x", shape=(3,)), pt.matrix("matrix", shape=(3, 3))
    rows = pt.matrix("rows", shape=(7, 3))
    graphs = [matrix @ x, ifelse(pt.gt(x[0], 0), pt.exp(x).sum(), x[1])]
    values = np.random.default_rng(0).normal(size=(7, 3)), np.eye(3)[::-1] * 2.0

    def found():
        outputs = loop(graphs, {x: rows}, {}, {matrix: matrix}, 7)
        function = pytensor.function([rows, matrix], outputs, mode="JAX")
        return [np.asarray(output) for output in function(*values)]

    def noted(op):
        at_once.append(side_by_side(op))
        return at_once[-1]

    expected, at_once, side_by_side = found(), [], jax_loop._side_by_side
    monkeypatch.setattr(jax_loop, "on_processor", lambda backend: False)
    monkeypatch.setattr(jax_loop, "_SIDE_BY_SIDE", largest)
    monkeypatch.setattr(jax_loop, "_side_by_side", noted)
    for one, other in zip(found(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    # The largest arrays of a step are vectors of 3
    assert at_once == [min(7, max(1, largest // 3))]
