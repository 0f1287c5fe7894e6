"""What is observed has the shape and the rows of what it is compared with."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.steps import start
from pymc_sgmcmc.testing import UNTUNED

X = np.random.default_rng(0).normal(size=(40, 2))
Y = X @ [1.0, -1.0]
COLUMN = Y[:, None]


def batch(*arrays):
    return pm.Minibatch(*arrays, batch_size=10)


def in_data(*arrays):
    return [pm.Data(f"array_{k}", array) for k, array in enumerate(arrays)]


def normal(mu, y, total_size=40):
    pm.Normal("y", mu, observed=y, total_size=total_size)


def full(b):
    pm.Normal("y", X @ b, observed=COLUMN)


def full_in_data(b):
    x, y = in_data(X, COLUMN)
    pm.Normal("y", x @ b, observed=y)


def column(b):
    x, y = batch(X, COLUMN)
    normal(x @ b, y)


def column_in_data(b):
    x, y = batch(*in_data(X, COLUMN))
    normal(x @ b, y)


def column_of_labels(b):
    x, y = batch(X, (COLUMN > 0).astype("int32"))
    pm.Bernoulli("y", logit_p=x @ b, observed=y, total_size=40)


def column_of_a_mixture(b):
    x, y = batch(X, COLUMN)
    parts = [pm.Normal.dist(x @ b, sd) for sd in (1, 2)]
    pm.Mixture("y", w=[0.5, 0.5], comp_dists=parts, observed=y, total_size=40)


def column_of_a_density(b):
    x, y = batch(X, COLUMN)
    pm.CustomDist("y", x @ b, logp=lambda y, mu: -((y - mu) ** 2), observed=y, total_size=40)


def density_of_all_pairs(b):
    """Of an array in a column that the user's function holds."""
    mean = b[0] * COLUMN
    pm.CustomDist("y", mean[0, 0], logp=lambda y, _: -((y - mean) ** 2), observed=COLUMN[:, 0])


def one_vector_whole(b):
    x, y = in_data(X, Y)
    normal(x @ b, batch(y))


def of_a_negative_total(b):
    normal(b[0], batch(Y), total_size=-40)


def batches_of(size):
    return lambda b: normal(b[0], pm.Minibatch(Y, batch_size=size))


PAIRED = r"^The observed variable 'y' has the shape \({}\) and {} of shape \({}\)\. .*y\[:, 0\]"
PARAMETERS = "is compared with parameters"


@pytest.mark.parametrize(
    ("likelihood", "said"),
    [
        (full, PAIRED.format("40, 1", PARAMETERS, "1, 40")),
        (full_in_data, PAIRED.format("40, 1", PARAMETERS, "1, 40")),
        (column, PAIRED.format("10, 1", PARAMETERS, "1, 10")),
        (column_in_data, PAIRED.format("10, 1", PARAMETERS, "1, 10")),
        (column_of_labels, PAIRED.format("10, 1", PARAMETERS, "1, 10")),
        (column_of_a_mixture, PAIRED.format("10, 1", PARAMETERS, "1, 10")),
        (column_of_a_density, PAIRED.format("10, 1", "gives a log density", "10, 10")),
        (density_of_all_pairs, PAIRED.format("40,", "gives a log density", "40, 40")),
        (one_vector_whole, PAIRED.format("10,", PARAMETERS, "40,")),
        (of_a_negative_total, r"total_size=-40\. Pass .* rows, 40"),
        (batches_of(-10), "batch_size=-10. Pass "),
        (batches_of(0), "batch_size=0. Pass "),
    ],
)
def test_what_does_not_fit_is_refused(likelihood, said):
    with pm.Model():
        likelihood(pm.Normal("b", shape=2))
        with pytest.raises(ValueError, match=said):
            sg.SMLD()


def test_a_column_along_a_dim_is_refused():
    with pm.Model(coords={"row": range(40)}):
        x = pm.Data("x", X, dims=("row", None))
        y = pm.Data("data", COLUMN, dims=("row", None))
        pm.Normal("y", x @ pm.Normal("b", shape=2), observed=y)
        with pytest.raises(ValueError, match=PAIRED.format("40, 1", PARAMETERS, "1, 40")):
            sg.SMLD(batch_size=10, batch_dim="row")


def column_beside_column(b):
    x, y = batch(*in_data(X, COLUMN))
    normal((x @ b)[:, None], y)


def matrix_beside_a_row(b):
    normal(b, batch(np.c_[Y, Y]))


def batch_of_one(b):
    x, y = pm.Minibatch(X, COLUMN, batch_size=1)
    normal(x @ b, y)


def counts(b):
    y = batch(np.tile([1, 2], (40, 1)).astype("int32"))
    pm.Multinomial("y", n=3, p=pm.math.softmax(b), observed=y, total_size=(40, None))


def density_of_a_vector(b):
    # Parameters of any shape, among them one of the length of a batch
    x, y = batch(X, Y)
    logp = lambda y, x, b: -((y - x @ b) ** 2)  # noqa: E731
    pm.CustomDist("y", x, b, logp=logp, signature="(d),(d)->()", observed=y, total_size=40)


def residuals(b):
    # The same zeros for every batch
    x, y = batch(X, Y)
    normal(y - x @ b, np.zeros(10))


@pytest.mark.parametrize(
    "likelihood",
    [column_beside_column, matrix_beside_a_row, batch_of_one, counts, density_of_a_vector],
)
def test_what_fits_is_taken(likelihood):
    with pm.Model():
        likelihood(pm.Normal("b", shape=2))
        sg.SMLD()


def test_a_hurdle_of_which_pymc_knows_no_signature_is_taken():
    counts = np.array([0, 2, 1, 0, 3], dtype="int32")
    with pm.Model():
        chance, mean = pm.Beta("chance", 1, 1), pm.Exponential("mean", 1)
        pm.HurdleNegativeBinomial("y", psi=chance, mu=mean, alpha=2, observed=counts)
        sg.CoRVSGLD()


def test_observed_data_that_are_no_part_of_the_batch_are_refused():
    said = "'y' is not a sum over .* or on their place in it.* draw all arrays of rows in one"
    for array in (lambda y: y, lambda y: pm.Data("data", y)):
        with pm.Model():
            normal(batch(X) @ pm.Normal("b", shape=2), array(Y[:10]))
            with pytest.raises(ValueError, match=said):
                sg.SMLD()
    with pm.Model():
        residuals(pm.Normal("b", shape=2))
        sg.SMLD()


@pytest.mark.parametrize("size", ["auto", 2])
def test_an_observed_expression_is_taken(size):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Deterministic("c", pm.math.clip(pm.Normal.dist(x, shape=5), -1, 1))
    observed = pm.observe(model, {"c": [0.9, 0.5, 0.3, 1.0, 1.0]})
    step = sg.SGLD(model=observed, step_size=0.01, batch_size=size, backend="jax", **UNTUNED)
    point, _ = step.step(start(step, 0, 1))
    assert np.isfinite(point["x"])
