"""A loop does what its graphs say, and takes only what they read."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pytensor.conditional import ifelse
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.linalg import eigh

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.jax_loop import Loop
from pymc_sgmcmc.kernel.loop import looped, unchanged


def test_a_loop_of_states_steps_and_what_is_fixed(backend):
    step, state, rate, unread = (pt.scalar(n, dtype="float64") for n in ("a", "s", "r", "u"))
    steps = pt.vector("steps", dtype="float64", shape=(3,))
    start = pt.scalar("start", dtype="float64")
    graphs = [rate * state + step, state - step, pt.constant(True)]
    fixed = unchanged([rate, unread])
    state, others, same = looped(graphs, {step: steps}, {state: start}, fixed, backend)
    nodes = {x.owner for x in ancestors([others]) if x.owner}
    [loop] = [node for node in nodes if isinstance(node.op, Scan | Loop)]
    assert rate in loop.inputs and unread not in loop.inputs
    last, others, same = compiled([steps, start, rate, unread], [state, others, same], backend)(
        np.array([1.0, 2.0, 3.0]), np.array(5.0), np.array(0.5), np.array(np.nan)
    )
    np.testing.assert_allclose(last, 4.875)
    np.testing.assert_allclose(others, [4.0, 1.5, 0.75])
    assert np.all(same)


def test_a_loop_in_a_loop(backend):
    step, state, factor = (pt.scalar(n, dtype="float64") for n in ("a", "s", "f"))
    row = pt.vector("row", dtype="float64", shape=(2,))
    rows = pt.matrix("rows", dtype="float64", shape=(3, 2))
    # exp(factor) is the same in all steps of both
    inner = state * pt.exp(factor) + step
    [end] = looped([inner], {step: row}, unchanged([state]), unchanged([factor]), backend)
    given = {row: rows}, unchanged([state]), unchanged([factor])
    last, each = looped([end, end], *given, backend)
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array(1.0), np.array(np.log(2.0))
    found = compiled([rows, state, factor], [last, each], backend)(*values)
    np.testing.assert_allclose(found[0], 184.0)
    np.testing.assert_allclose(found[1], [8.0, 42.0, 184.0])


@pytest.mark.parametrize("backend", [pytest.param("numba", marks=pytest.mark.slow), "jax"])
def test_eigenvectors_that_are_the_same_in_all_steps_are_computed_before(backend):
    """Also those that a branch reads, two of them, in a loop in a loop."""
    step, wanted = pt.scalar("a", dtype="float64"), pt.scalar("wanted", dtype="int8")
    first, second = (pt.matrix(n, dtype="float64", shape=(2, 2)) for n in "mn")
    (values, vectors), (others, _) = eigh(first + first.T), eigh(2 * second)
    read = step * (values[1] + vectors[0, 0] ** 2) + others[1]
    graph = ifelse(wanted > 0, read, step)
    row, rows = pt.vector("row", dtype="float64", shape=(3,)), pt.matrix(shape=(2, 3))
    flags, many = pt.vector(dtype="int8", shape=(3,)), pt.matrix(dtype="int8", shape=(2, 3))
    fixed = unchanged([first, second])
    [inner] = looped([graph], {step: row, wanted: flags}, {}, fixed, backend)
    [outer] = looped([inner], {row: rows, flags: many}, {}, fixed, backend)
    [loop] = [
        x.owner for x in ancestors([outer]) if x.owner and isinstance(x.owner.op, Scan | Loop)
    ]
    assert not {first, second} & set(loop.inputs)
    numbers = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    which = np.array([[1, 0, 1], [0, 1, 1]], dtype="int8")
    matrices = np.diag([1.0, 3.0]), np.diag([5.0, 4.0])
    [found] = compiled([rows, many, first, second], [outer], backend)(numbers, which, *matrices)
    np.testing.assert_allclose(found, np.where(which, numbers * (6.0 + 1.0) + 10.0, numbers))
