"""The full-data twin of a minibatched model: PyMC's density of the model that never saw a batch."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.five_models import zero_inflated
from helpers.minibatched_models import MODELS, data, reference, with_batches, without_batches
from pymc_sgmcmc.backends.compiling import INTERPRETER

[X, Y] = data(7, (60, 3), 60)
POSITIVE = np.abs(Y)
COUNTS = (np.arange(60) % 5).astype(np.int32)


def of_rows_and_columns(batched, total):
    """Mixtures of matrices and of rows, weights of each row, one component that has no rows."""
    x, y, v, z = batched(X, Y, 2 * Y, pm.Data("z_data", 2 * X), batch_size=7)
    a, sd = pm.Normal("a", [0.0, 1.0, 2.0]), pm.HalfNormal("sd")
    normal = pm.Normal.dist
    both = [normal(a[0], sd), normal(x[:, 0], 1)]
    pm.Mixture("several", [0.2, 0.8], both, observed=y, **total(60))
    pm.Mixture("one", pm.math.softmax(x * sd, axis=1), normal(x * a, 1), observed=v, **total(60))
    pm.Mixture("z", [0.5, 0.5], [normal(a, sd), normal(-a, 1)], observed=z, **total([60, None]))


def other_distributions(batched, total):
    """Truncated, of the user's own, hurdles, ordered, of counts and of vectors."""
    x, z, *values = batched(
        X, 2 * X, *[POSITIVE + k for k in range(2)], *[COUNTS] * 3, batch_size=7
    )
    y, w, n, m, k = values
    a, sd = pm.Normal("a", [0.0, 1.0, 2.0]), pm.HalfNormal("sd")
    pm.Truncated("truncated", pm.Normal.dist(x @ a, sd), lower=-0.1, observed=y, **total(60))
    pm.CustomDist(
        "own", x @ a, sd, dist=lambda m, s, size: pt.exp(pm.Normal.dist(m, s, size=size)),
        observed=w, **total(60),
    )  # fmt: skip
    pm.HurdlePoisson("hurdle", 0.3, pt.exp(x @ a), observed=n, **total(60))
    cuts = pm.Normal("cuts", [0, 1, 2, 3], transform=pm.distributions.transforms.ordered)
    pm.OrderedLogistic("ordered", cutpoints=cuts, eta=x @ a, observed=m, **total(60))
    pm.MvNormal("vectors", x * a, np.eye(3) + sd, observed=z, **total([60, None]))
    pm.NegativeBinomial("n", mu=pt.exp(x @ a), alpha=sd, observed=k, **total(60))


def potentials(batched, total):
    """Sums and means over rows, in four writings."""
    x, y = batched(X, Y, batch_size=7)
    rows = 7 if total(60) else 60
    a, b = pm.Normal("a", [0.0, 1.0, 2.0]), pm.Normal("b", initval=0.5)
    loss = -((y - x @ a) ** 2)
    pm.Potential("vector", 60 / rows * loss)
    pm.Potential("sum", 60 / rows * pt.sum(loss))
    pm.Potential("mean", pt.mean(loss) * 60)
    pm.Potential("by_length", 60 / x.shape[0] * pt.sum(loss))
    pm.Potential("of_none", -(b**4))


BUILDS = [*MODELS, zero_inflated, of_rows_and_columns, other_distributions, potentials]


@pytest.mark.parametrize("build", BUILDS)
def test_its_density_and_gradient_are_those_of_a_model_without_batches(build):
    full = sg.full_data(with_batches(build))
    point, logp, gradient = reference(build)
    outputs = [full.logp(), full.dlogp()]
    found = pm.compile(full.value_vars, outputs, mode=INTERPRETER)(*point)
    np.testing.assert_allclose(found[0], logp, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-10, atol=1e-10)
    for rv in full.observed_RVs:
        assert rv.type.shape[0] in (None, full.rvs_to_values[rv].type.shape[0])


# The draws need not be those of a good fit
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
def test_loo_is_that_of_a_model_without_batches():
    rng = np.random.default_rng(1)
    posterior = {
        "psi": rng.uniform(0.55, 0.65, (2, 100)),
        "beta": rng.normal(0.5, 0.1, (2, 100, 2)),
    }
    found = []
    for model in (sg.full_data(with_batches(zero_inflated)), without_batches(zero_inflated)):
        dt = az.from_dict({"posterior": posterior})
        with model:
            pm.compute_log_likelihood(dt, progressbar=False)
        found.append(az.loo(dt, pointwise=True))
    assert found[0].elpd == found[1].elpd
    np.testing.assert_array_equal(found[0].elpd_i, found[1].elpd_i)
    assert found[0].elpd_i.shape == (2000,)


def with_names():
    with pm.Model(coords={"row": range(60), "feature": list("abc"), "pair": [0, 1]}) as model:
        data = pm.Data("x_data", X, dims=("row", "feature"))
        y_data = pm.Data("y_data", Y, dims="row")
        x, y, n = pm.Minibatch(data, y_data, pm.Data("n", COUNTS, dims="row"), batch_size=7)
        beta = pm.Normal("beta", dims="feature", initval=[0.1, 0.2, 0.3])
        sd = pm.HalfNormal("sd", dims="pair", default_transform=sg.transforms.Softplus(2.0))
        mean = pm.Deterministic("mean", x @ beta, dims="row")
        pm.Deterministic("scale", sd.sum())
        pm.Normal("y", mean, sd[0], observed=y, total_size=[data.shape[0]])
        pm.Poisson("n_observed", pt.exp(mean), observed=n, total_size=60, dims="row")
    return model


def test_what_has_a_name_keeps_it():
    model = with_names()
    full = sg.full_data(model)
    assert list(full.named_vars) == list(model.named_vars)
    assert dict(full.coords) == dict(model.coords)
    assert dict(full.named_vars_to_dims) == {**model.named_vars_to_dims, "y": ("row",)}
    for group in ("free_RVs", "observed_RVs", "deterministics", "data_vars", "value_vars"):
        assert [x.name for x in getattr(full, group)] == [x.name for x in getattr(model, group)]
    assert full.rvs_to_transforms[full["sd"]] is model.rvs_to_transforms[model["sd"]]
    np.testing.assert_array_equal(full.rvs_to_initial_values[full["beta"]], [0.1, 0.2, 0.3])
    drawn = pm.draw([full["y"], full["n_observed"], full["mean"]], mode="FAST_COMPILE")
    assert [len(x) for x in drawn] == [60, 60, 60]


def test_new_data_of_one_are_not_those_of_the_other():
    model = with_names()
    full = sg.full_data(model)
    assert np.shares_memory(
        full["x_data"].get_value(borrow=True), model["x_data"].get_value(borrow=True)
    )
    with full:
        pm.set_data({"x_data": X[:9], "y_data": Y[:9], "n": COUNTS[:9]}, coords={"row": range(9)})
        [drawn] = pm.draw([full["y"]], mode="FAST_COMPILE")
    assert drawn.shape == (9,)
    assert model["x_data"].get_value(borrow=True).shape == (60, 3)
    assert len(model.coords["row"]) == 60
    assert int(model.dim_lengths["row"].eval()) == 60


# ------------------------------------------------------------------ what has no twin


def no_batches():
    pm.Normal("y", pm.Normal("a"), observed=Y)


def centred():
    x, y = pm.Minibatch(X[:, 0], Y, batch_size=7)
    pm.Normal("y", pm.Normal("a", 1) * (x - x.mean()), observed=y, total_size=60)


def length_as_a_number():
    x, y = pm.Minibatch(X[:, 0], Y, batch_size=7)
    pm.Normal("y", pm.Normal("a") * x + np.arange(7), observed=y, total_size=60)


def length_in_a_factor():
    x, y = pm.Minibatch(X[:, 0], Y, batch_size=7)
    weight = pt.arange(x.shape[0]) + 1.0
    pm.Normal("y", pm.Normal("a", 1) * x * weight, observed=y, total_size=60)


def deterministic_of_a_length():
    y = pm.Minibatch(Y, batch_size=7)
    pm.Deterministic("weighted", y * np.arange(7.0))
    pm.Normal("y", pm.Normal("a"), observed=y, total_size=60)


def squared_sum():
    y = pm.Minibatch(Y, batch_size=7)
    pm.Potential("p", -(pt.sum(y * pm.Normal("a", 1)) ** 2))


def own_gradient():
    y = pm.Minibatch(Y, batch_size=7)
    sg.GradientPotential(
        "g", lambda a, y, noise: pt.sum(y - a), [pm.Normal("a")], [y], total_size=60
    )


def without_total_size():
    with pytest.warns(UserWarning, match="total_size not provided"):
        pm.Normal("y", pm.Normal("a"), observed=pm.Minibatch(Y, batch_size=7))


REFUSED = [
    (no_batches, ValueError, "has no pm.Minibatch: it is its own full-data model"),
    (centred, NotImplementedError, "row of 'y' depends on the batch.*Compute such means of all"),
    (length_as_a_number, NotImplementedError, "'y' cannot be rebuilt .* length of its batch"),
    (length_in_a_factor, NotImplementedError, "row of 'y' depends on the batch"),
    (deterministic_of_a_length, NotImplementedError, "'weighted' cannot be rebuilt .* batch_dim"),
    (squared_sum, ValueError, "'p' is no sum over the rows of a pm.Minibatch"),
    (own_gradient, NotImplementedError, "a GradientPotential, of which no density is known"),
    (without_total_size, ValueError, "'y' uses a pm.Minibatch without the size of the full data"),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_what_has_no_twin_is_refused_by_name(build, error, match):
    with pm.Model() as model:
        build()
    with pytest.raises(error, match=match):
        sg.full_data(model)


def test_rows_on_disk_are_not_read(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    with pm.Model() as model:
        y = pm.Minibatch(sg.on_disk(tmp_path / "y.npy"), batch_size=7)
        pm.Normal("y", pm.Normal("a"), observed=y, total_size=60)
    with pytest.raises(NotImplementedError, match=r"rows of .*y.npy.* are on disk"):
        sg.full_data(model)
