"""Triangular systems with many right-hand sides."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import SolveTriangular, solve_triangular

from helpers.modes import PLAIN
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.model.solves import products_for_solves

ORDER = 3


def systems(graphs):
    """Return the right-hand sides' shapes of all triangular systems."""
    return [
        variable.owner.inputs[1].type.shape
        for variable in ancestors(list(graphs))
        if variable.owner is not None
        and isinstance(variable.owner.op, Blockwise)
        and isinstance(variable.owner.op.core_op, SolveTriangular)
    ]


@pytest.mark.parametrize(
    ("of_matrix", "of_b", "b_ndim"),
    [((), (50,), 1), ((1,), (50,), 1), ((1, 1), (5, 10), 1), ((), (), 2), ((1,), (4,), 2)],
    ids=str,
)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_products_are_the_solutions(of_matrix, of_b, b_ndim, lower, unit_diagonal):
    rng = np.random.default_rng(0)
    columns = (ORDER,) if b_ndim == 1 else (ORDER, 20)
    a = pt.tensor("a", dtype="float64", shape=(*of_matrix, ORDER, ORDER))
    b = pt.tensor("b", dtype="float64", shape=(*of_b, *columns))
    solved = solve_triangular(a, b, lower=lower, unit_diagonal=unit_diagonal, b_ndim=b_ndim)
    [product] = products_for_solves([solved])
    assert product.type == solved.type
    assert all(np.prod(shape) <= ORDER**2 for shape in systems([product]))
    outputs = []
    for x in (solved, product):
        gradients = pytensor.grad(pt.sum(pt.sin(x)), [a, b])
        outputs += [x, *gradients]
    arrays = rng.normal(size=a.type.shape) + 4 * np.eye(ORDER), rng.normal(size=b.type.shape)
    found = pytensor.function([a, b], outputs, mode=PLAIN)(*arrays)
    for one, other in zip(found[:3], found[3:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("of_matrix", "of_b"), [((), (2,)), ((7,), (7,)), ((), (None,))], ids=str)
def test_few_columns_and_many_matrices_are_left(of_matrix, of_b):
    a = pt.tensor("a", dtype="float64", shape=(*of_matrix, ORDER, ORDER))
    b = pt.tensor("b", dtype="float64", shape=(*of_b, ORDER))
    solved = solve_triangular(a, b, lower=True, b_ndim=1)
    assert products_for_solves([solved]) == [solved]


def test_rows_of_a_multivariate_normal_are_no_systems():
    """Otherwise a gradient of this model costs ten times as much on busy cores."""
    with pm.Model() as model:
        y = pm.Minibatch(np.random.default_rng(0).normal(size=(1000, ORDER)), batch_size=100)
        mean = pm.Normal("mean", shape=ORDER)
        chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=ORDER, sd_dist=pm.Exponential.dist(1))
        pm.MvNormal("y", mean, chol=chol, observed=y, total_size=1000)
    point = dict(
        zip(["mean", "chol_cholesky-cov-packed__"], [np.zeros(3), np.zeros(6)], strict=True)
    )
    coordinates, _, _ = coordinates_at(model, model.value_vars, "model", point)
    posterior = Posterior(model, coordinates)
    weighted, *_ = posterior.weighted()
    joined = posterior.joined(3)
    assert joined is not None
    graphs = [posterior.log_density, *posterior.gradient, weighted, joined.weighted()[0]]
    assert all(np.prod(shape) <= ORDER**2 for shape in systems(graphs))
