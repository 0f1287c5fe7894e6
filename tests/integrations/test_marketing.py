"""Models that PyMC-Marketing builds, with no argument but the sampler, or a batch's size."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.batches_of_models import assert_batches_make_up_the_density
from helpers.z_scores import assert_right

# What PyMC-Marketing warns of is not about this package
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pymc_marketing")
    import pandas as pd

    from pymc_marketing import clv, mmm

pytestmark = pytest.mark.filterwarnings("ignore")

N = 300
COVARIATES = {"purchase_covariate_cols": ["promoted"], "dropout_covariate_cols": ["old"]}


def customers(count=N):
    rng = np.random.default_rng(0)
    T = rng.uniform(20, 40, count)
    rate, drop = rng.gamma(0.6, 1 / 4.5, count), rng.beta(0.8, 2.5, count)
    frequency, recency, at = np.zeros((3, count))
    alive = np.ones(count, bool)
    while alive.any():
        at += rng.exponential(1 / rate)
        alive &= at <= T
        frequency[alive] += 1
        recency[alive] = at[alive]
        alive &= rng.random(count) > drop
    return pd.DataFrame({
        "customer_id": np.arange(count), "frequency": frequency, "recency": recency, "T": T,
        "promoted": rng.normal(size=count), "old": rng.binomial(1, 0.4, count).astype(float),
    })  # fmt: skip


def spenders(count=N):
    rng = np.random.default_rng(1)
    frequency = rng.integers(1, 6, count)
    value = rng.gamma(6 * frequency, 90 / rng.gamma(6, 1, count) / (6 * frequency))
    return pd.DataFrame({
        "customer_id": np.arange(count), "frequency": frequency, "monetary_value": value,
    })  # fmt: skip


def purchases(count=N):
    value = np.repeat(spenders(count // 2)["monetary_value"].to_numpy(), 2)
    who = np.repeat(np.arange(count // 2), 2)
    return pd.DataFrame({"customer_id": who, "individual_transaction_value": value})


def contracts(count=N):
    rng = np.random.default_rng(2)
    return pd.DataFrame({
        "customer_id": np.arange(count), "recency": np.minimum(rng.geometric(0.3, count), 8),
        "T": 8, "cohort": rng.choice(["early", "late"], count),
    })  # fmt: skip


def donors(count=N):
    rng = np.random.default_rng(3)
    frequency = rng.binomial(6, 0.5, count)
    recency = np.where(frequency > 0, np.minimum(frequency + 1, 6), 0)
    return pd.DataFrame({
        "customer_id": np.arange(count), "frequency": frequency, "recency": recency, "T": 6,
    })  # fmt: skip


MODELS = {
    "BG/NBD": (clv.BetaGeoModel, customers),
    "BG/NBD, covariates": (lambda: clv.BetaGeoModel(model_config=dict(COVARIATES)), customers),
    "modified BG/NBD": (clv.ModifiedBetaGeoModel, customers),
    "modified BG/NBD, covariates": (
        lambda: clv.ModifiedBetaGeoModel(model_config=dict(COVARIATES)), customers,
    ),
    "Pareto/NBD": (clv.ParetoNBDModel, customers),
    "Pareto/NBD, covariates": (
        lambda: clv.ParetoNBDModel(model_config=dict(COVARIATES)), customers,
    ),
    "gamma-gamma": (clv.GammaGammaModel, spenders),
    "gamma-gamma of each purchase": (clv.GammaGammaModelIndividual, purchases),
    "BG/BB": (clv.BetaGeoBetaBinomModel, donors),
    "shifted BG": (clv.ShiftedBetaGeoModel, contracts),
}  # fmt: skip


def built(name, count=N):
    kind, data = MODELS[name]
    model = kind()
    model.build_model(data(count))
    return model


def fitted(model, draws=30, **options):
    with model.model:
        step = sg.CoRVSGLD(**options)
    model.fit(
        step=step, draws=draws, tune=draws, chains=2, cores=1, random_seed=1, progressbar=False,
        compute_convergence_checks=False,
    )  # fmt: skip
    return step


@pytest.mark.parametrize("name", MODELS)
def test_batches_make_up_the_density(name):
    model = built(name).model
    step = sg.CoRVSGLD(model=model, batch_size=20)
    assert step.options.batch_size == 20
    assert_batches_make_up_the_density(step, model)


@pytest.mark.parametrize("options", [{}, {"batch_size": 20}], ids=["all rows", "batches"])
def test_what_pymc_marketing_does_with_a_result(options):
    model = built("BG/NBD")
    step = fitted(model, **options)
    assert step.options.batch_size == options.get("batch_size")
    assert len(model.fit_summary()) == 6
    assert model.expected_purchases(future_t=10).sizes["customer_id"] == N
    alive = model.expected_probability_alive()
    assert ((alive >= 0) & (alive <= 1)).all()
    assert clv.plot_probability_alive_matrix(model) is not None
    assert clv.plot_expected_purchases_ppc(model, samples=20) is not None


def mixed_media(*, regions=()):
    """A media mix model of 80 weeks, in which what was spent acts for four of them."""
    rng = np.random.default_rng(4)
    weeks = pd.date_range("2024-01-01", periods=80, freq="W-MON")
    each = max(1, len(regions))
    data = pd.DataFrame({"date": np.repeat(weeks, each)})
    if regions:
        data["region"] = np.tile(regions, 80)
    data["tv"], data["radio"] = rng.uniform(size=(2, len(data)))
    sales = 1 + data["tv"] / 2 + rng.normal(0, 0.1, len(data))
    model = mmm.MMM(
        date_column="date", target_column="y", channel_columns=["tv", "radio"],
        adstock=mmm.GeometricAdstock(l_max=4), saturation=mmm.LogisticSaturation(),
        **({"dims": ("region",)} if regions else {}),
    )  # fmt: skip
    model.build_model(data, sales.rename("y"))
    return model


@pytest.mark.parametrize("regions", [(), ("north", "south")], ids=["one region", "two regions"])
def test_weeks_that_depend_on_each_other_are_not_drawn_in_batches(regions):
    model = mixed_media(regions=regions).model
    assert sg.CoRVSGLD(model=model).options.batch_size is None
    with pytest.raises(ValueError, match="is not a sum over the rows of the dim 'date'"):
        sg.CoRVSGLD(model=model, batch_size=20)


def test_a_media_mix_model_is_sampled_with_all_weeks():
    model = mixed_media()
    # Its fit() samples a copy that no step can have been made for
    with model.model:
        model.idata = pm.sample(
            20, tune=20, chains=1, cores=1, step=sg.SGLD(), random_seed=1, progressbar=False
        )
    assert model.idata.posterior["channel_contribution"].sizes["date"] == 80


def test_a_large_model_draws_batches_and_a_small_one_does_not():
    assert sg.CoRVSGLD(model=built("BG/NBD").model).options.batch_size is None
    step = sg.CoRVSGLD(model=built("BG/NBD", 50_000).model)
    assert step.options.batch_size >= 100
    assert step.options.batch_dim == "customer_id"


@pytest.mark.slow
def test_customers_are_as_nuts_has_them():
    model = built("BG/NBD", 4_000)
    with model.model:
        nuts = pm.sample(
            2_000, tune=1_000, chains=2, cores=1, random_seed=2, progressbar=False
        ).posterior
    exact = {name: (x.values.mean((0, 1)), x.values.std((0, 1))) for name, x in nuts.items()}
    step = fitted(model, draws=1_000, batch_size=100)
    assert step.options.batch_size == 100
    assert_right(model.fit_result, exact)
