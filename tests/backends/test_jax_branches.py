"""What is moved into the branches of conditionals, and what they then give."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.conditional import ifelse
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.fg import FunctionGraph

from pymc_sgmcmc.backends.jax_backend import prepare
from pymc_sgmcmc.backends.jax_branches import take_apart
from pymc_sgmcmc.backends.jax_loop import Loop, loop


def nested(wanted, x):
    """Return a value and a gradient, of which 0 wants none and 1 the gradient alone."""
    both = pt.exp(x)
    value = ifelse(pt.eq(wanted, 2), pt.sum(pt.log1p(both)), pt.zeros(()))
    return ifelse(wanted >= 1, [value, both * pt.tanh(x)], [pt.zeros(()), pt.zeros_like(x)])


def names(graph):
    return {str(getattr(node.op, "scalar_op", node.op)) for node in graph.apply_nodes}


def branches_of(graph):
    """Return the graphs of the one conditional of a graph."""
    [op] = [node.op for node in graph.apply_nodes if isinstance(node.op, LazyIfElse)]
    return op.true_branch.fgraph, op.false_branch.fgraph


def test_a_branch_holds_what_nothing_else_reads():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    fgraph = FunctionGraph([wanted, x], nested(wanted, x), clone=True)
    take_apart(fgraph)
    assert not {"exp", "tanh", "log1p"} & names(fgraph)
    taken, other = branches_of(fgraph)
    assert {"exp", "tanh"} <= names(taken) and not {"exp", "tanh"} & names(other)
    within, without = branches_of(taken)
    assert "log1p" in names(within) and not names(without) & {"log1p", "exp"}
    # What both read stays between the two
    assert "exp" not in names(within)


def test_what_is_read_outside_stays_outside():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    shared, own = pt.exp(x), pt.tanh(x)
    outputs = [ifelse(wanted, shared + own, x), shared]
    fgraph = FunctionGraph([wanted, x], outputs, clone=True)
    take_apart(fgraph)
    assert "exp" in names(fgraph)
    assert "tanh" not in names(fgraph)


def test_a_conditional_between_what_is_known_stays():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    more = x + 1
    fgraph = FunctionGraph([wanted, x], [ifelse(wanted, x, more), more], clone=True)
    take_apart(fgraph)
    assert not any(isinstance(node.op, LazyIfElse) for node in fgraph.apply_nodes)


def test_a_loop_takes_the_branch_that_is_wanted():
    pytest.importorskip("jax")
    prepare()
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    which, points = pt.ivector("which", shape=(4,)), pt.matrix("points", shape=(4, 3))
    found = loop(nested(wanted, x), {wanted: which, x: points}, {}, {}, 4)
    function = pytensor.function([which, points], found, mode="JAX")
    [op] = [node.op for node in function.maker.fgraph.apply_nodes if isinstance(node.op, Loop)]
    taken, _ = branches_of(op.fgraph)
    assert "LazyIfElse" in names(taken)
    at = np.linspace(-2.0, 2.0, 12).reshape(4, 3)
    value, gradient = function(np.array([0, 1, 2, 1], dtype="int32"), at)
    np.testing.assert_allclose(value, [0, 0, np.sum(np.log1p(np.exp(at[2]))), 0], rtol=1e-12)
    expected = np.exp(at) * np.tanh(at)
    expected[0] = 0
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)
