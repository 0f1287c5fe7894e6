"""What is computed of data alone."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_sgmcmc.model.computed_once import computed_once

ROWS = 100


def operations(graphs):
    """Return the names of elementwise operations that are left."""
    nodes = {x.owner for x in ancestors(graphs) if x.owner is not None}
    return {type(node.op.scalar_op).__name__ for node in nodes if isinstance(node.op, Elemwise)} & {
        "Sin",
        "Exp",
        "Add",
    }


def test_costly_results_of_data_are_constants():
    x = np.linspace(0, 1, ROWS)
    beta = pt.scalar("beta")
    [found] = computed_once([beta * pt.sin(3 * pt.constant(x)) + pt.exp(beta)])
    assert operations([found]) == {"Exp", "Add"}
    np.testing.assert_allclose(found.eval({beta: 2.0}), 2 * np.sin(3 * x) + np.exp(2))


def test_light_ones_stay():
    """Their results may be larger than their arguments, and are as fast to compute as to read."""
    x = pt.constant(np.linspace(0, 1, ROWS))
    beta = pt.scalar("beta")
    graphs = [beta * (x[:, None] + x[None])]
    assert computed_once(graphs) == graphs


def test_random_numbers_and_batches_stay():
    x = pm.Minibatch(np.linspace(0, 1, ROWS), batch_size=10)
    graphs = [pt.sin(x), pt.exp(pm.draw(pm.Normal.dist()) + pm.Normal.dist(shape=ROWS))]
    assert computed_once(graphs) == graphs


def test_what_the_interpreter_refuses_stays():
    of_unknown_shape = pytensor.shared(np.ones((2, 3)))
    graphs = [pt.dot(of_unknown_shape, np.ones(4)) * pt.scalar("beta")]
    assert computed_once(graphs) == graphs
