"""Rows that a step method finds by itself, and when it draws batches of them."""

import logging
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.gallery import small_models
from helpers.models_with_rows import MODELS, N, X, Y
from helpers.modes import PLAIN
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.model import choice_of_batches
from pymc_sgmcmc.model.initial_point import initial_point


@pytest.fixture
def without_dims(monkeypatch):
    """Models are written without data containers, and without dims of what has rows."""
    new = pm.Distribution.__new__

    def plain(cls, name, *parameters, **options):
        if options.get("observed") is not None:
            options.pop("dims", None)
        return new(cls, name, *parameters, **options)

    monkeypatch.setattr(pm.Distribution, "__new__", plain)
    monkeypatch.setattr(pm, "Data", lambda _, value, **__: pt.as_tensor(np.asarray(value)))
    for kind in ("Potential", "Deterministic"):
        made = getattr(pm, kind)
        monkeypatch.setattr(pm, kind, lambda name, x, made=made, **_: made(name, x))


@pytest.fixture
def batches_pay(monkeypatch):
    """Batches of few rows of small data pay, so that small models show what large ones do."""
    monkeypatch.setattr(choice_of_batches, "_SIZES", (7,))
    monkeypatch.setattr(choice_of_batches, "_LEAST_BATCHES", 2)


def assert_density(step, model):
    """Assert that the blocks of the rows that a step draws from make up PyMC's density."""
    start = initial_point(model)
    compiled = Engine(step._read_model, model.value_vars, step.options, start)
    # Two points: to compile takes longer
    compiled.use("interpreter")
    rng = np.random.default_rng(1)
    near = {v.name: start[v.name] + rng.normal(0, 0.1, np.shape(start[v.name])) for v in
            model.value_vars}  # fmt: skip
    function = pm.compile(model.value_vars, [model.logp()], mode=PLAIN)
    potential = compiled.potential_at(5, *[[]] * 2)
    phi, _ = compiled.express(near)
    moved = compiled.values_at(phi, [], [])
    at_start = compiled.values_at(compiled.express(start)[0], [], [])
    both = [potential.join(compiled.express(point)[0]) for point in (near, start)]
    found = potential.full(np.stack(both))[0]
    # Up to the coordinates' Jacobian, which is none in the model's own
    exact = [function(*moved)[0], function(*at_start)[0]]
    np.testing.assert_allclose(found, -np.array(exact), rtol=1e-9)


# Without dims these are ambiguous, or need data containers
NEED_DIMS = {
    "regression", "as_many_others_as_rows", "rows_of_several_lengths", "sparse_designs",
}  # fmt: skip


@pytest.mark.parametrize("build", [build for build in MODELS if build.__name__ not in NEED_DIMS])
def test_rows_are_found_without_dims(build, without_dims):
    model = build()
    step = sg.CoRVSGLD(model=model, batch_size=7, transforms="model", centring=None)
    assert step.options.batch_size == 7
    assert_density(step, model)


# Of the gallery's small models: those whose rows are drawn in batches. Of the others rows depend on
# each other or have variables of their own
HAVE_ROWS = {
    "varying_intercepts", "varying_slopes", "crossed_effects", "ordinal_regression",
    "weibull_survival", "normal_mixture", "zero_inflated_poisson", "hurdle_counts",
    "student_t_regression", "multivariate_normal", "dirichlet_multinomial",
    "negative_binomial_regression", "spline_logistic", "laplace_regression", "lasso", "prophet",
    "ridge_logistic", "gamma_glm", "laboratories", "trend", "penalised_spline",
}  # fmt: skip
HAVE_NONE = {
    "latent_gp", "ar2", "beta_binomial", "missing_values", "missing_mediator", "local_level",
    "gaussian_process_counts", "growth_curves", "item_response", "marginal_process",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HAVE_ROWS | HAVE_NONE))
def test_models_of_the_gallery(name, without_dims, batches_pay, monkeypatch):
    model = small_models(monkeypatch)[name]()
    step = sg.CoRVSGLD(model=model, transforms="model", centring=None)
    assert (step.options.batch_size is not None) == (name in HAVE_ROWS)
    if name in HAVE_ROWS:
        assert_density(step, model)


def test_all_models_of_the_gallery_are_listed(monkeypatch):
    assert set(small_models(monkeypatch)) == HAVE_ROWS | HAVE_NONE


def test_as_many_groups_as_rows_are_not_taken_for_rows():
    order = np.random.default_rng(0).permutation(N)
    with pm.Model() as model:
        groups = pm.Normal("slope") * Y + pm.Normal("effects", shape=N)
        pm.Normal("y", groups[order], observed=Y)
    with pytest.raises(ValueError, match=r"it depends on an array of shape .*'effects'"):
        sg.CoRVSGLD(model=model, batch_size=7)
    assert sg.CoRVSGLD(model=model).options.batch_size is None


# ------------------------------------------------------------------ where it is not said


def of_two_lengths():
    a = pm.Normal("a")
    pm.Normal("y", a, observed=Y)
    pm.Normal("z", a, observed=np.arange(40.0))


def of_a_number():
    pm.Normal("y", pm.Normal("a"), observed=1.5)


def of_one_vector():
    pm.MvNormal("y", pm.Normal("a", shape=N), np.eye(N), observed=Y)


def in_pm_minibatch():
    pm.Normal("y", pm.Normal("a"), observed=pm.Minibatch(Y, batch_size=5), total_size=N)


def of_a_series():
    a = pm.Normal("a")
    pm.Normal("y", pt.cumsum(a * X[:, 0]), observed=Y)


def of_their_number():
    y = pm.Data("y_data", Y, dims="obs")
    pm.Potential("loss", -50 * (y - pm.Normal("a")) ** 2 / y.shape[0], dims="obs")


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (of_two_lengths, r"no axis of rows in common.*\{'y': 0\} \(60 rows\), .*\{'z': 0\}"),
        (of_a_number, "batch_size=7, but no observed variable or potential has an axis"),
        (of_one_vector, "batch_size=7, but no observed variable or potential has an axis"),
        (in_pm_minibatch, "draws batches by pm.Minibatch, where the size.* Leave batch_size out"),
        (of_a_series, "log density of 'y' is not a sum over the rows"),
        (of_their_number, "log density of 'loss' is not a sum over the rows"),
    ],
)
def test_a_size_without_rows_is_refused(build, match):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=match):
        sg.CoRVSGLD(model=model, batch_size=7)


def of_few_that_say_nothing():
    """Their deviation is 0 and their density no number."""
    values = np.zeros(2000)
    values[-1] = 1
    x = pm.Data("x", values, dims="obs")
    z = (x - x.mean()) / x.std()
    pm.Normal("y", pm.Normal("a") * z, observed=np.zeros(2000), dims="obs")


def of_one_density():
    pm.CustomDist("y", pm.Normal("a"), logp=lambda y, a: -pt.sum((y - a) ** 2), observed=Y)


@pytest.mark.parametrize(
    "build",
    [of_a_number, of_one_vector, in_pm_minibatch, of_a_series, of_their_number,
     of_few_that_say_nothing, of_one_density],
)  # fmt: skip
def test_without_a_size_such_models_take_all_rows(build, batches_pay):
    with pm.Model() as model:
        build()
    assert sg.CoRVSGLD(model=model).options.batch_size is None


def width_of_data():
    x = pm.Data("x", X)
    pm.Normal("y", x @ pm.Normal("b", 0, 1, shape=x.shape[1]), observed=Y)


def width_of_a_constant():
    x = pt.as_tensor(X)
    pm.Normal("y", x @ pm.Normal("b", 0, 1, shape=x.shape[1]), observed=Y)


def shape_of_their_number():
    y = pm.Data("y_data", Y, dims="obs")
    pm.Normal("y", pm.Normal("a") + pt.zeros(y.shape[0]), observed=y)


def of_a_potential(dims):
    x = pm.Data("x", Y, dims=dims)
    pm.Potential("loss", -pt.abs(x - pm.Normal("a")))


@pytest.mark.parametrize(
    ("build", "given"),
    [
        # Lengths of arrays may be shapes
        (width_of_data, None),
        (width_of_a_constant, None),
        (shape_of_their_number, None),
        # A potential has the rows of its data
        (lambda: of_a_potential("obs"), None),
        (lambda: of_a_potential(None), None),
        (lambda: of_a_potential(None), {"loss": 0}),
        # One of two lengths can be named
        (of_two_lengths, {"z": 0}),
    ],
)
def test_rows_are_found_in_arrays(build, given):
    with pm.Model() as model:
        build()
    step = sg.CoRVSGLD(
        model=model, batch_size=7, batch_dim=given, transforms="model", centring=None
    )
    assert_density(step, model)


def test_the_axis_of_a_matrix_can_be_named():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=X)
    first = sg.CoRVSGLD(model=model, batch_size=3)
    second = sg.CoRVSGLD(model=model, batch_size=3, batch_dim={"y": 1})
    assert first._read_model.named_vars_to_dims["y"] == ("rows of y", None)
    assert second._read_model.named_vars_to_dims["y"] == (None, "rows of y")
    assert "y" not in model.named_vars_to_dims


def of_dims_of_data_alone():
    x = pm.Data("x", X, dims=("obs", "k"))
    pm.Normal("y", x @ pm.Normal("b", shape=3), observed=pm.Data("y_data", Y, dims="obs"))


def of_a_dim_of_the_last():
    a = pm.Normal("a")
    pm.Normal("y", a, observed=Y)
    pm.Normal("z", a, observed=X[:, 0], dims="obs")


def of_a_dim_of_the_first():
    a = pm.Normal("a")
    pm.Normal("z", a, observed=X[:, 0], dims="obs")
    pm.Normal("y", a, observed=Y)


@pytest.mark.parametrize(
    "build", [of_dims_of_data_alone, of_a_dim_of_the_last, of_a_dim_of_the_first]
)
@pytest.mark.parametrize("size", ["auto", 7])
def test_what_has_no_dim_has_that_of_the_other_rows(build, size, batches_pay):
    with pm.Model(coords={"obs": range(N)}) as model:
        build()
    step = sg.CoRVSGLD(model=model, batch_size=size)
    assert (step.options.batch_size, step.options.batch_dim) == (7, "obs")
    assert step._read_model.named_vars_to_dims["y"] == ("obs",)


def test_the_step_says_what_it_draws(batches_pay, caplog):
    with pm.Model(coords={"obs": range(N)}) as model:
        pm.Normal("y", pm.Normal("a"), observed=Y, dims="obs")
    with caplog.at_level(logging.INFO, "pymc.sgmcmc"):
        step = sg.CoRVSGLD(model=model)
    assert caplog.messages == [
        "An update takes batches of 7 of the 60 rows of 'obs'; with batch_size=None it takes all."
    ]
    assert (step.options.batch_size, step.options.batch_dim) == (7, "obs")
    assert sg.CoRVSGLD(model=model, batch_size=None).options.batch_size is None


def test_without_tuning_batches_are_not_chosen(batches_pay):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=Y)
    by_hand = {"step_size": 1e-3, "thin": 1, "scale": None, "gradient": "plain", "batches": 1}
    assert sg.SGLD(model=model, **by_hand).options.batch_size is None


@pytest.mark.parametrize("sampled", [True, False])
def test_new_data_have_batches_of_their_own(batches_pay, sampled):
    with pm.Model():
        y = pm.Data("y_data", Y)
        pm.Normal("y", pm.Normal("a"), observed=y)
        step = sg.CoRVSGLD()
        assert step.options.batch_size == 7
        if sampled:
            pm.sample(2, tune=1, chains=1, step=step, random_seed=1, progressbar=False)
        pm.set_data({"y_data": Y[:8]})
        pm.sample(2, tune=1, chains=1, step=step, random_seed=1, progressbar=False)
    assert step.options.batch_size is None


def test_few_numbers_a_row_make_large_batches():
    y = np.random.default_rng(0).normal(size=(50_000, 40))
    sizes = {}
    for columns in (4, 40):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("a", shape=columns), observed=y[:, :columns])
        sizes[columns] = sg.CoRVSGLD(model=model).options.batch_size
    assert sizes[4] >= 5 * sizes[40] > 0


def test_rows_on_disk_need_no_dim(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(100_000, 8)))
    np.save(tmp_path / "y.npy", rng.normal(size=100_000))
    x, y = (sg.on_disk(tmp_path / f"{name}.npy") for name in "xy")
    with pm.Model():
        pm.Normal("y", x @ pm.Normal("b", shape=8), observed=y)
        assert sg.CoRVSGLD().options.batch_size == 2000


@pytest.mark.parametrize("dims", [None, ("obs", "k")])
def test_columns_of_data_containers_count(dims):
    x, sizes = np.random.default_rng(0).normal(size=(10_000, 400)), []
    for held in (lambda: x, lambda: pm.Data("x", x, dims=dims)):
        with pm.Model() as model:
            product = pm.math.dot(held(), pm.Normal("b", shape=400))
            pm.Normal("y", product, observed=np.zeros(10_000))
        sizes.append(sg.CoRVSGLD(model=model).options.batch_size)
    assert sizes[0] is not None
    assert sizes[0] == sizes[1]


def test_a_shorter_axis_may_pay():
    x = np.random.default_rng(0).normal(size=(20_000, 400))
    with pm.Model() as model:
        pm.Normal("cheap", pm.Normal("a"), observed=np.zeros(30_000))
        pm.Normal("y", x @ pm.Normal("b", shape=400), observed=np.zeros(20_000))
    assert sg.CoRVSGLD(model=model).options.batch_size is not None


def test_it_is_said_where_many_rows_cannot_be_drawn(batches_pay, caplog):
    """A missing value makes those that are observed fewer than the others."""
    y = Y.copy()
    y[3] = np.nan
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")
        pm.Normal("y", X @ pm.Normal("b", shape=X.shape[1]), observed=y)
    with caplog.at_level(logging.INFO, "pymc.sgmcmc"):
        assert sg.CoRVSGLD(model=model).options.batch_size is None
    assert "An update takes all 59 rows: batches of them cannot be drawn" in caplog.text


def test_it_is_said_where_rows_could_not_be_compared(batches_pay, caplog):
    """No value has a probability."""
    with pm.Model(), caplog.at_level(logging.INFO):
        pm.Uniform("y", 5, 6 + pm.HalfNormal("a"), observed=np.zeros(50_000))
        step = sg.CoRVSGLD()
    assert step._rows.size is None
    assert "takes all 50,000 rows of 'y': whether they are independent could not" in caplog.text


@pytest.mark.parametrize("summed", [True, False])
def test_it_is_said_that_a_sum_has_no_rows(batches_pay, caplog, summed):
    with pm.Model(), caplog.at_level(logging.INFO):
        y = pm.Data("data", np.zeros(20_000))
        density = pm.logp(pm.Normal.dist(pm.Normal("a"), 1), y)
        pm.Potential("y", density.sum() if summed else density)
        step = sg.CoRVSGLD()
    assert (step._rows.size is None) is summed
    assert ("all data of the potential 'y', which is one number" in caplog.text) is summed


def test_it_is_said_which_observations_count_in_full(batches_pay, caplog):
    with pm.Model(), caplog.at_level(logging.INFO):
        a = pm.Normal("a")
        for k in (0, 1):
            pm.Normal(f"y{k}", a, observed=np.zeros(20_000 - k))
        sg.CoRVSGLD()
    assert "20,000 rows of 'y0', and all 19,999 other observations; with" in caplog.text
