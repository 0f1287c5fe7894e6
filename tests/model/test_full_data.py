"""The full-data twin of a minibatched model is the model that was never minibatched."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pytensor.sparse import structured_dot
from scipy.sparse import csr_matrix

import pymc_sgmcmc as sg

from helpers.five_models import FIVE, groups, logistic
from helpers.minibatched_models import MODELS, with_batches, without_batches
from helpers.modes import PLAIN
from helpers.sampling import QUIET, run
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.testing import UNTUNED

INTERPRETED = {"compile_kwargs": {"mode": INTERPRETER}}
Y = np.random.default_rng(1).normal(size=60)


def density_at(model, point):
    """The log density, its gradient, and that of each row."""
    rows = model.logp(vars=model.observed_RVs, sum=False)
    outputs = [model.logp(), model.dlogp(), *rows]
    function = pm.compile(model.value_vars, outputs, mode=PLAIN)
    return function(*(point[value.name] for value in model.value_vars))


def near_start(model):
    rng = np.random.default_rng(0)
    return {
        name: value + rng.normal(0, 0.2, size=np.shape(value))
        for name, value in initial_point(model).items()
    }


def assert_same_density(twin, plain, rtol=0):
    point = near_start(plain)
    for found, value in zip(density_at(twin, point), density_at(plain, point), strict=True):
        np.testing.assert_allclose(found, value, rtol=rtol)


@pytest.mark.parametrize("build", [*MODELS, *FIVE])
def test_it_is_the_model_that_was_never_minibatched(build):
    twin, plain = sg.full_data(with_batches(build)), without_batches(build)
    assert [rv.name for rv in twin.basic_RVs] == [rv.name for rv in plain.basic_RVs]
    assert twin.named_vars.keys() == plain.named_vars.keys()
    start, expected = initial_point(twin), initial_point(plain)
    assert start.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(start[name], value)
    assert_same_density(twin, plain)


def draws_of(model):
    rng = np.random.default_rng(2)
    values = pm.draw(model.free_RVs, mode=INTERPRETER, random_seed=2)
    return az.from_dict({
        "posterior": {
            rv.name: value + 0.01 * rng.random(size=(2, 20, *np.shape(value)))
            for rv, value in zip(model.free_RVs, values, strict=True)
        }
    })  # fmt: skip


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of few draws
@pytest.mark.parametrize("build", [logistic, groups])
def test_loo_and_predictions_are_those_of_the_model_that_was_never_minibatched(build):
    models = sg.full_data(with_batches(build)), without_batches(build)
    draws, found = draws_of(models[1]), []
    for model in models:
        of_model = draws.copy()
        with model:
            pm.compute_log_likelihood(of_model, progressbar=False, **INTERPRETED)
            predicted = pm.sample_posterior_predictive(
                of_model, random_seed=3, progressbar=False, **INTERPRETED
            )
        loo = az.loo(of_model, pointwise=True)
        found.append((loo.elpd, loo.elpd_i.values, predicted.posterior_predictive["y"].values))
    assert found[0][1].shape == (400,)
    for twins, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(twins, plain)


def test_nuts_samples_it():
    draws = []
    for model in (sg.full_data(with_batches(logistic)), without_batches(logistic)):
        with model:
            result = pm.sample(
                20, tune=20, chains=1, cores=1, random_seed=1, nuts_sampler="pymc", **INTERPRETED,
                **QUIET,
            )  # fmt: skip
        draws.append(result.posterior["slopes"].values)
    np.testing.assert_array_equal(*draws)


def with_data():
    coords = {"row": range(100, 160), "item": ["a", "b"]}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", np.stack([Y, Y**2], axis=1), dims=("row", "item"))
        x, y = pm.Minibatch(x, pm.Data("data", Y, dims="row"), batch_size=7)
        b = pm.Normal("b", dims="item", initval=[0.5, 0.3])
        sd = pm.HalfNormal("sd", default_transform=pm.distributions.transforms.LogExpM1())
        pm.Deterministic("mean", x @ b)
        pm.Normal("y", model["mean"], sd, observed=y, total_size=60)
    return model


def test_dims_coords_transforms_and_data():
    model = with_data()
    twin = sg.full_data(model)
    assert twin.named_vars_to_dims == {**model.named_vars_to_dims, "y": ("row",)}
    assert dict(twin.coords) == dict(model.coords)
    assert list(twin.rvs_to_transforms.values()) == list(model.rvs_to_transforms.values())
    assert twin["mean"].eval({twin["b"]: [1.0, 0.0]}, mode=INTERPRETER) == pytest.approx(Y)
    assert twin["x"].get_value(borrow=True) is model["x"].get_value(borrow=True)
    # Predictions of other rows, in the twin alone
    with twin:
        pm.set_data({"x": np.eye(2), "data": np.zeros(2)}, coords={"row": ["new", "newer"]})
        assert twin["y"].shape.eval(mode=INTERPRETER) == [2]
        draws = az.from_dict(
            {"posterior": {"b": np.ones((1, 5, 2)), "sd": np.ones((1, 5))}},
            coords={"item": ["a", "b"]},
            dims={"b": ["item"]},
        )
        predicted = pm.sample_posterior_predictive(
            draws, random_seed=1, progressbar=False, **INTERPRETED
        )
    assert list(predicted.posterior_predictive["row"].values) == ["new", "newer"]
    assert len(model["x"].get_value()) == 60


def test_dims_of_counts_that_are_observed_as_numbers():
    with pm.Model(coords={"row": range(20)}) as model:
        counts = pm.Data("counts", np.arange(20), dims="row")
        counts, x = pm.Minibatch(counts, np.arange(20.0), batch_size=5)
        pm.Normal("y", x * pm.Normal("b"), 1.0, observed=counts, total_size=20)
    assert sg.full_data(model).named_vars_to_dims["y"] == ("row",)


def test_rows_on_disk(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    with pm.Model() as model:
        y = pm.Minibatch(sg.on_disk(tmp_path / "y.npy"), batch_size=7)
        pm.Normal("y", pm.Normal("mu"), observed=y, total_size=60)
    assert density_at(sg.full_data(model), {"mu": 0.3})[2] == pytest.approx(
        -((Y - 0.3) ** 2) / 2 - np.log(2 * np.pi) / 2
    )


@pytest.mark.parametrize(
    "written",
    [
        lambda y, a: -60 / 7 * (y - a) ** 2,
        lambda y, a: -60 / 7 * pt.sum((y - a) ** 2),
        lambda y, a: -60 / y.shape[0] * pt.sum((y - a) ** 2),
        lambda y, a: -60 * pt.mean((y - a) ** 2),
    ],
)
def test_potentials(written):
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=7)
        pm.Potential("loss", written(y, pm.Normal("a")))
        pm.Potential("prior", -(model["a"] ** 4))
    twin = sg.full_data(model)
    for name, expected in (("loss", -np.sum((Y - 0.3) ** 2)), ("prior", -(0.3**4))):
        found = pt.sum(twin[name]).eval({twin["a"]: 0.3}, mode=INTERPRETER)
        assert found == pytest.approx(expected)
    assert density_at(twin, {"a": 0.3})[0] == pytest.approx(
        -np.sum((Y - 0.3) ** 2) - 0.3**4 - 0.3**2 / 2 - np.log(2 * np.pi) / 2
    )


def test_sparse_data_that_are_not_drawn_in_batches():
    design = csr_matrix(np.arange(15.0).reshape(5, 3))
    of_row = np.arange(60, dtype=np.int32) % 5

    def model_of(of_row, observed, **total_size):
        with pm.Model() as model:
            means = structured_dot(pm.Data("design", design), pm.Normal("w", shape=(3, 1)))
            pm.Normal("y", means[:, 0][of_row], observed=observed, **total_size)
        return model

    plain = model_of(of_row, Y)
    twin = sg.full_data(model_of(*pm.Minibatch(of_row, Y, batch_size=7), total_size=60))
    assert_same_density(twin, plain, rtol=1e-12)


# ------------------------------------------------------------------------ what has none


def no_minibatch(y):
    pm.Normal("y", pm.Normal("a"), observed=Y)


def no_sum(y):
    pm.Potential("p", -60 / 7 * pt.sum((y - pm.Normal("a")) ** 2) - 1)


def square_of_a_sum(y):
    pm.Potential("p", -(pt.sum(y - pm.Normal("a")) ** 2))


def no_value(y):
    sg.GradientPotential(
        "g", lambda a, y, noise: pt.sum(y - a), [pm.Normal("a")], [y], total_size=60
    )


def another_size(y):
    pm.Normal("y", pm.Normal("a"), observed=y, total_size=50)


def dim_of_a_batch(y):
    pm.Normal("y", pm.Normal("a"), observed=y, total_size=60, dims="batch")


def numbers(y):
    pm.Normal("y", (pm.Normal("a") * y).reshape((7, 1)).sum(axis=1), observed=y, total_size=60)


def centred(y):
    pm.Normal("y", pm.Normal("a") * y.mean(), observed=y, total_size=60)


@pytest.mark.filterwarnings("ignore:The potential")
@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (no_minibatch, ValueError, "no pm.Minibatch: it is its own full-data model"),
        (no_sum, ValueError, "The term 'p' is no sum over the rows"),
        (square_of_a_sum, ValueError, "'p' is not a sum over the rows of a pm.Minibatch"),
        (no_value, NotImplementedError, "GradientPotential, of which no density is known"),
        (another_size, ValueError, r"'y' counts for total_size=50 rows.* draws from 60"),
        (dim_of_a_batch, ValueError, r"'y' has the dim 'batch', .* the length of a batch"),
        (centred, ValueError, r"'y' is not a sum over the rows of a pm.Minibatch"),
        (numbers, NotImplementedError, r"'y' is written for as many rows as a batch has"),
    ],
)
def test_what_has_none_is_refused_by_name(build, error, match):
    with pm.Model(coords={"batch": range(7)}) as model:
        build(pm.Minibatch(Y, batch_size=7))
    with pytest.raises(error, match=match):
        sg.full_data(model)


def test_a_distribution_of_the_users_own_gets_the_parameters_of_the_twin():
    def model_of(observed, **total_size):
        with pm.Model() as model:
            mean, sd = pm.Normal("mean"), pm.HalfNormal("sd")
            pm.CustomDist(
                "y", mean, sd, dist=lambda m, s, size: pt.exp(pm.Normal.dist(m, s, size=size)),
                observed=observed, **total_size,
            )  # fmt: skip
        return model

    rows = np.exp(np.random.default_rng(0).normal(size=60))
    plain = model_of(rows)
    twin = sg.full_data(model_of(pm.Minibatch(rows, batch_size=7), total_size=60))
    assert_same_density(twin, plain)


@pytest.mark.filterwarnings("ignore:The potential")
def test_a_potential_that_is_0_in_most_rows():
    y, seen = np.random.default_rng(0).normal(size=600), np.zeros(600)
    seen[432] = 1
    with pm.Model() as model:
        batch, s = pm.Minibatch(y, seen, batch_size=7)
        pm.Potential("loss", -600 * pt.mean(s * (batch - pm.Normal("a")) ** 2))
    twin = sg.full_data(model)
    found = pt.sum(twin["loss"]).eval({twin["a"]: 0.3}, mode=INTERPRETER)
    assert found == pytest.approx(-((y[432] - 0.3) ** 2))


def test_rows_that_are_impossible_near_the_start_are_no_error():
    data = np.linspace(0, 5, 200)
    with pm.Model() as model:
        upper = pm.HalfNormal("upper", 1)
        rows = pm.Minibatch(data, batch_size=50)
        pm.Uniform("y", 0, upper, observed=rows, total_size=len(data))
    of_all = sg.full_data(model)
    logp = pm.compile(of_all.value_vars, of_all.logp(vars=[of_all["y"]]), mode=PLAIN)
    assert logp(np.log(6)) == pytest.approx(-200 * np.log(6))


def test_densities_of_a_model_with_starts_are_computed():
    with pm.Model() as model:
        a = pm.Normal("a", initval=0.5)
        rows = pm.Minibatch(np.linspace(0, 1, 60), batch_size=20)
        pm.Normal("y", a, observed=rows, total_size=60)
        dt = run(sg.SGLD(step_size=0.01, backend="jax", **UNTUNED), 2, 1, None, tune=1)
    with sg.full_data(model) as of_all:
        pm.compute_log_likelihood(dt, progressbar=False, **INTERPRETED)
    assert dt.log_likelihood["y"].shape == (1, 2, 60)
    assert of_all.rvs_to_initial_values[of_all["a"]] == 0.5
