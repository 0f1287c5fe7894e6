"""Models that Bambi builds, with no argument but the sampler, or a batch's size."""

import warnings

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.batches_of_models import assert_batches_make_up_the_density
from helpers.z_scores import assert_right

# What Bambi warns of is not about this package
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bmb = pytest.importorskip("bambi")
    import pandas as pd

pytestmark = pytest.mark.filterwarnings("ignore")

N = 400


def data(count=N):
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, count))
    c, g = rng.choice(list("abc"), count), rng.choice([f"g{k}" for k in range(8)], count)
    eta = 0.3 + 0.5 * x - 0.2 * z + 0.4 * (c == "b")
    noisy = eta + rng.logistic(size=count)
    return pd.DataFrame({
        "x": x, "z": z, "c": c, "g": g, "t": rng.uniform(0, 10, count),
        "y": eta + rng.normal(0, 0.7, count),
        "b": (noisy > 0).astype(int),
        "k": rng.poisson(np.exp(eta) * rng.gamma(2, 0.5, count)),
        "m": rng.binomial(10, 1 / (1 + np.exp(-eta))), "ten": 10,
        "time": rng.exponential(np.exp(eta)),
        "status": np.where(rng.random(count) < 0.3, "right", "none"),
        "o": pd.Categorical(np.digitize(noisy, [-0.5, 0.7, 1.5]), ordered=True),
    })  # fmt: skip


MODELS = {
    "covariates": ("y ~ x + c", "gaussian"),
    "no covariates": ("y ~ 1", "gaussian"),
    "groups": ("b ~ x + c + (1|g)", "bernoulli"),
    "slopes of groups": ("y ~ x + (x|g)", "gaussian"),
    "nested groups": ("y ~ x + (1|g/c)", "t"),
    "interactions": ("b ~ x * c + x:z", "bernoulli"),
    "counts": ("k ~ x + offset(z)", "negativebinomial"),
    "of ten": ("p(m, ten) ~ x", "binomial"),
    "ordinal": ("o ~ x + z", "cumulative"),
    "splines": ("y ~ bs(t, df=6)", "gaussian"),
    "field": ("y ~ 0 + hsgp(t, m=10, c=2)", "gaussian"),
    "censored": ("censored(time, status) ~ x", "exponential"),
    "weighted": ("weighted(y, t) ~ x", "gaussian"),
    "two formulas": (("y ~ x", "sigma ~ z"), "gaussian"),
}


def built(name, count=N):
    formula, family = MODELS[name]
    if isinstance(formula, tuple):
        formula = bmb.Formula(*formula)
    link = {"link": "log"} if family == "exponential" else {}
    model = bmb.Model(formula, data(count), family=family, **link)
    model.build()
    return model


def fitted(model, draws=30, **options):
    with model.backend.model:
        step = sg.CoRVSGLD(**options)
    dt = model.fit(
        step=step, draws=draws, tune=draws, chains=2, cores=1, random_seed=1, progressbar=False,
        compute_convergence_checks=False,
    )  # fmt: skip
    return step, dt


@pytest.mark.parametrize("name", MODELS)
def test_batches_make_up_the_density(name):
    model = built(name).backend.model
    step = sg.CoRVSGLD(model=model, batch_size=20)
    assert (step.options.batch_size, step.options.batch_dim) == (20, "__obs__")
    assert_batches_make_up_the_density(step, model)


@pytest.mark.parametrize("options", [{}, {"batch_size": 20}], ids=["all rows", "batches"])
def test_what_bambi_does_with_a_result(options):
    model = built("interactions")
    step, dt = fitted(model, **options)
    assert step.options.batch_size == options.get("batch_size")
    assert {"Intercept", "x", "c", "x:c", "x:z"} == set(dt.posterior.data_vars)
    new = data().head(7)
    predicted = model.predict(dt, data=new, inplace=False)
    assert predicted.posterior["p"].sizes == {"chain": 2, "draw": 30, "__obs__": 7}
    model.predict(dt, kind="response")
    assert dt.posterior_predictive["b"].shape == (2, 30, N)
    assert bmb.interpret.plot_predictions(model, dt, "x") is not None
    assert len(bmb.interpret.comparisons(model, dt, "x").summary) > 0


def test_a_large_model_draws_batches_and_a_small_one_does_not():
    assert sg.CoRVSGLD(model=built("groups").backend.model).options.batch_size is None
    step = sg.CoRVSGLD(model=built("groups", 100_000).backend.model)
    assert step.options.batch_size >= 100
    assert step.left_out == {"p"}


@pytest.mark.slow
def test_groups_are_as_nuts_has_them():
    model = built("groups", 4_000)
    nuts = model.fit(
        draws=2_000, tune=1_000, chains=2, cores=1, random_seed=2, progressbar=False
    ).posterior
    exact = {name: (x.values.mean((0, 1)), x.values.std((0, 1))) for name, x in nuts.items()}
    step, dt = fitted(model, draws=1_000, batch_size=100)
    assert step.options.batch_size == 100
    assert_right(dt.posterior, exact)
