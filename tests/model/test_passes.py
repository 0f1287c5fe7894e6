"""Rewrites of graphs: classes, results of data, triangular systems, kinks."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc.exceptions import ImputationWarning
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import SolveTriangular, solve_triangular
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from helpers.modes import PLAIN, REWRITTEN
from pymc_sgmcmc.diagnostics.model_density import ModelDensity
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.graphs import nodes_of
from pymc_sgmcmc.model.passes import (
    canonical,
    computed_once,
    log_softmax_of_classes,
    masks_as_numbers,
    products_for_solves,
)
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.model.whole_numbers import whole_numbers

ROWS, CLASSES = 40, 6


def logp(by, labels):
    """Return the scores' symbol and the log likelihood of labels, as PyMC writes it."""
    with pm.Model() as model:
        scores = pm.Flat("scores", shape=(ROWS, CLASSES))
        given = scores if by == "logit_p" else pm.math.softmax(scores, axis=-1)
        pm.Categorical("y", **{by: given}, observed=labels)
    return model.value_vars[0], model.logp(vars=model.observed_RVs)


@pytest.mark.parametrize("by", ["logit_p", "p"])
@pytest.mark.parametrize("size", [1, 1000])
def test_density_and_gradient_are_exact_also_where_a_probability_is_zero(by, size):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, ROWS)
    scores, density = logp(by, labels)
    [rewritten] = log_softmax_of_classes([density])
    gradient = canonical([pt.grad(rewritten, scores)])
    at = size * rng.normal(size=(ROWS, CLASSES))
    value, slope = pytensor.function([scores], [rewritten, *gradient], mode=REWRITTEN)(at)
    # Of a softmax by its definition, in extended precision
    wide = at.astype(np.longdouble)
    logs = wide - wide.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    chosen = np.eye(CLASSES)[labels]
    np.testing.assert_allclose(value, float((logs * chosen).sum()), rtol=1e-12)
    np.testing.assert_allclose(slope, (chosen - np.exp(logs)).astype(float), atol=1e-14)
    assert not any(
        x.owner is not None and isinstance(x.owner.op, AdvancedIncSubtensor)
        for x in ancestors(gradient)
    )


@pytest.mark.parametrize("rows", [np.arange(ROWS), np.arange(ROWS)[:, None]])
def test_entries_from_the_end_are_chosen_and_other_rows_are_left_alone(rows):
    x, v = pt.matrix(shape=(ROWS, CLASSES)), pt.tensor(shape=rows.shape)
    entries = np.random.default_rng(2).integers(-CLASSES, CLASSES, rows.shape)
    values = np.random.default_rng(3).normal(size=rows.shape)
    expected = np.zeros((ROWS, CLASSES))
    expected[rows, entries] = values
    order = np.roll(rows, 1, axis=0)
    for at, scatters in ((rows, False), (order, True)):
        [graph] = canonical([pt.zeros_like(x)[at, entries].inc(v)])
        kept = [y for y in ancestors([graph]) if y.owner is not None]
        assert any(isinstance(y.owner.op, AdvancedIncSubtensor) for y in kept) == scatters
    [graph] = canonical([pt.zeros_like(x)[rows, entries].inc(v)])
    found = pytensor.function([x, v], graph, mode=REWRITTEN, on_unused_input="ignore")(
        0 * expected, values
    )
    np.testing.assert_array_equal(found, expected)


LENGTH = 100


def operations(graphs):
    """Return the names of elementwise operations that are left."""
    nodes = {x.owner for x in ancestors(graphs) if x.owner is not None}
    return {type(node.op.scalar_op).__name__ for node in nodes if isinstance(node.op, Elemwise)} & {
        "Sin",
        "Exp",
        "Add",
    }


def test_a_constant_of_booleans_that_rows_index_is_no_mask():
    """Were it one, it would be replaced by itself without end."""
    of_groups = pt.as_tensor(np.array([True, False]))
    group, x = pt.lvector("group"), pt.vector("x")
    graphs = [of_groups[group], x[group].set(of_groups[group]), x[np.array([True, False, True])]]
    rows, written, chosen = pytensor.function([x, group], masks_as_numbers(graphs), mode=PLAIN)(
        np.array([5.0, 6.0, 7.0]), [0, 1]
    )
    np.testing.assert_array_equal(rows, [True, False])
    np.testing.assert_array_equal(written, [1, 0, 7])
    np.testing.assert_array_equal(chosen, [5, 7])


def test_costly_results_of_data_are_constants():
    x = np.linspace(0, 1, LENGTH)
    beta = pt.scalar("beta")
    [found] = computed_once([beta * pt.sin(3 * pt.constant(x)) + pt.exp(beta)])
    assert operations([found]) == {"Exp", "Add"}
    np.testing.assert_allclose(found.eval({beta: 2.0}), 2 * np.sin(3 * x) + np.exp(2))


def test_light_ones_stay():
    """Their results may be larger than their arguments, and are as fast to compute as to read."""
    x = pt.constant(np.linspace(0, 1, LENGTH))
    beta = pt.scalar("beta")
    graphs = [beta * (x[:, None] + x[None])]
    assert computed_once(graphs) == graphs


def test_random_numbers_and_batches_stay():
    x = pm.Minibatch(np.linspace(0, 1, LENGTH), batch_size=10)
    graphs = [pt.sin(x), pt.exp(pm.draw(pm.Normal.dist()) + pm.Normal.dist(shape=LENGTH))]
    assert computed_once(graphs) == graphs


def test_what_the_interpreter_refuses_stays():
    of_unknown_shape = pytensor.shared(np.ones((2, 3)))
    graphs = [pt.dot(of_unknown_shape, np.ones(4)) * pt.scalar("beta")]
    assert computed_once(graphs) == graphs


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


def test_the_opposite_of_a_mask_is_one():
    """Of a multivariate normal of which some entries are missing PyMC writes both."""
    observed = np.random.default_rng(0).normal(size=(40, 3))
    observed[::7, 1] = np.nan
    with pm.Model() as model, pytest.warns(ImputationWarning):
        pm.MvNormal("y", pm.Normal("mu", shape=3), np.eye(3), observed=observed)
    [density] = masks_as_numbers([model.logp()])
    indices = [
        index
        for node in nodes_of([density], AdvancedSubtensor | AdvancedIncSubtensor)
        for index in node.inputs[1:]
    ]
    assert indices
    assert not any(getattr(index.type, "dtype", None) == "bool" for index in indices)
    logp = pm.compile(model.value_vars, [density, model.logp()], mode=PLAIN)
    new, old = logp(np.arange(3.0), np.ones(6))
    assert new == pytest.approx(old)


WHOLE = {
    "half Student t": lambda number: pm.HalfStudentT("x", nu=number(5), sigma=number(20)),
    "ex-Gaussian": lambda number: pm.ExGaussian("x", sigma=number(20), nu=number(12)),
    "field": lambda number: pm.ICAR("x", W=np.eye(6, k=1) + np.eye(6, k=-1), sigma=number(20)),
    "beta-binomial": lambda number: pm.BetaBinomial(
        "y", alpha=number(100), beta=number(100), n=100, observed=[55, 40]
    ),
    "large": lambda number: pm.HalfStudentT("x", nu=number(5), sigma=number(3000)),
}


@pytest.mark.parametrize("prior", WHOLE.values(), ids=WHOLE)
def test_densities_of_whole_numbers_are_those_of_floats(prior):
    """PyMC's have squares and sums of 8-bit integers."""
    densities = []
    for number in (int, float):
        with pm.Model() as model:
            prior(number)
            pm.Normal("other")
        [density] = whole_numbers([model.logp(jacobian=False)])
        at = [np.linspace(0.5, 1, 6) if "x" in model and model["x"].ndim else np.array(0.5)]
        at = [np.zeros(()) if v.name == "other" else at[0] for v in model.value_vars]
        densities.append(pm.compile(model.value_vars, density, mode=PLAIN)(*at))
    assert np.isfinite(densities[0])
    # Constants of floats are single precision where that is exact
    assert densities[0] == pytest.approx(densities[1], rel=1e-6)


def test_sums_of_small_whole_numbers_are_left():
    two, three = pt.constant(2, dtype="int8"), pt.constant(np.arange(3, dtype="int8"))
    graph = pt.vector("x")[two + 1] * (three * two)
    [same] = whole_numbers([graph])
    assert same is graph


def test_complements_of_small_whole_numbers_have_their_bits():
    graph = ~pt.constant(np.array([1, 7], dtype="uint8"))
    [same] = whole_numbers([graph])
    np.testing.assert_array_equal(same.eval(mode=PLAIN), [254, 248])


PLACES = np.sort(np.random.default_rng(3).uniform(-2, 2, 30))[:, None]
SEEN = np.sin(2 * PLACES[:, 0]) + 0.3 * np.random.default_rng(4).normal(size=30)


def of_pymc(kernel, approximation=None):
    def written(length, height, sigma):
        covariance = height**2 * getattr(pm.gp.cov, kernel)(1, length)
        if approximation is None:
            pm.gp.Marginal(cov_func=covariance).marginal_likelihood("y", PLACES, SEEN, sigma)
        else:
            gp = pm.gp.MarginalApprox(cov_func=covariance, approx=approximation)
            gp.marginal_likelihood("y", PLACES, PLACES[::4], SEEN, sigma)

    return written


def by_hand(distance_of):
    def written(length, height, sigma):
        scaled = PLACES / length
        sizes = pt.sum(scaled**2, axis=1)
        square = -2 * pt.dot(scaled, scaled.T) + sizes[:, None] + sizes
        q = np.sqrt(3) * distance_of(square)
        covariance = height**2 * (1 + q) * pt.exp(-q) + sigma**2 * pt.eye(30)
        pm.MvNormal("y", np.zeros(30), covariance, observed=SEEN)

    return written


PROCESSES = {
    "Matern32": of_pymc("Matern32"),
    "Exponential": of_pymc("Exponential"),
    "VFE": of_pymc("Matern52", "VFE"),
    "maximum": by_hand(lambda square: pt.sqrt(pt.maximum(square, 0) + 1e-12)),
    "abs": by_hand(lambda square: pt.sqrt(pt.abs(square) + 1e-12)),
    "switch": by_hand(
        lambda square: pt.switch(square > 1e-15, pt.sqrt(pt.switch(square > 1e-15, square, 1)), 0)
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_gradients_of_processes_are_those_of_differences(name):
    pytest.importorskip("jax")
    with pm.Model() as model:
        scales = pm.HalfNormal("height", 1), pm.HalfNormal("sigma", 1)
        PROCESSES[name](pm.InverseGamma("length", 3, 1), *scales)
    density = ModelDensity(model, backend="jax")
    rng = np.random.default_rng(0)
    # The rounding of the density itself is the larger part of the errors: at most a thousandth
    for at in np.log([1, 0.3, 0.6]) + rng.uniform(-0.3, 0.3, size=(5, 3)):
        steps = 1e-4 * np.eye(3)
        values = density._potential.full(np.concatenate([at + steps, at - steps]))[0]
        slopes = (values[:3] - values[3:]) / 2e-4
        np.testing.assert_allclose(density.gradients(at[None])[0], slopes, rtol=1e-4, atol=1e-3)


SCALES = np.random.default_rng(5).normal(size=(15, 4))


@pytest.mark.parametrize("recurrent", [False, True])
def test_the_gradient_of_an_extreme_that_a_step_returns(recurrent):
    pytest.importorskip("jax")

    def step(x, *others):
        *before, b, c = others
        return pt.max(1.7 * pt.exp(0.1 * x * b) + 0.3 * pt.sin(sum(before) + c))

    with pm.Model() as model:
        b, c = pm.Normal("b", shape=4), pm.Normal("c", shape=4)
        start = pt.zeros(()) if recurrent else None
        means = pytensor.scan(step, SCALES, start, [b, c], return_updates=False)
        pm.Normal("y", means, 1, observed=np.zeros(15))
    density, of_pymc = ModelDensity(model, backend="jax"), model.compile_dlogp(mode=PLAIN)
    for at in np.random.default_rng(0).normal(size=(10, 8)):
        slopes = of_pymc({"b": at[:4], "c": at[4:]})
        np.testing.assert_allclose(-density.gradients(at[None])[0], slopes, rtol=1e-9)


@pytest.mark.parametrize(
    "extreme", [pt.max, pt.min, lambda x, axis: pt.max(x.T, axis=1 - axis)], ids=["max", "min", "T"]
)
def test_the_gradient_of_an_extreme_is_that_of_one_entry(extreme):
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    x, seen = rng.normal(size=(50, 8, 5)), rng.normal(size=50)
    with pm.Model() as model:
        b = pm.Normal("b", shape=5)
        entries = 1.7 * pt.exp(0.3 * pt.dot(x, b)) + 0.3 * pt.sin(pt.dot(x, b)) + b.sum()
        pm.Normal("y", extreme(entries, axis=1), 1, observed=seen)
    density = ModelDensity(model, backend="jax")
    of_pymc = model.compile_dlogp(mode=PLAIN)
    for at in rng.normal(size=(10, 5)):
        np.testing.assert_allclose(-density.gradients(at[None])[0], of_pymc({"b": at}), rtol=1e-9)
