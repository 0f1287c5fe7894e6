"""What pm.sample returns, stores and keeps."""

import logging

import arviz as az
import cloudpickle
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.sparse
import pytest
import scipy.sparse

from pymc.sampling import mcmc

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.steps import assert_same_bits, draws_of, step_for
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.testing import UNTUNED

FEATURES = ["age", "height", "weight"]


def regression(rows=400, batch_size=50):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, len(FEATURES)))
    Y = X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=rows)
    with pm.Model(coords={"feature": FEATURES}) as model:
        x, y = pm.Minibatch(X, Y, batch_size=batch_size)
        beta = pm.Normal("beta", 0, 10, dims="feature")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Deterministic("precision", sigma**-2)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=len(X))
    return model


@pytest.mark.filterwarnings(
    # PyMC's predictive sampling of a model with pm.Minibatch says so by itself
    "ignore:Numba will use object mode to run MinibatchRandomVariable:UserWarning"
)
def test_the_result_is_like_any_other(tmp_path):
    model = regression()
    # A method with statistics of its own
    step = step_for("MSGNHT", model)
    with model:
        result = run(step, 60, tune=20)
        pm.sample_posterior_predictive(
            result,
            extend_inferencedata=True,
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    posterior = result.posterior
    assert posterior["beta"].dims == ("chain", "draw", "feature")
    assert posterior["beta"].shape == (2, 60, 3)
    assert list(posterior["feature"].values) == FEATURES
    np.testing.assert_allclose(posterior["precision"], posterior["sigma"] ** -2, rtol=1e-12)
    assert np.all(posterior["sigma"] > 0)
    declared = set(step.stats_dtypes_shapes) - {"warning"}
    assert set(result.sample_stats.data_vars) == declared
    assert result.sample_stats["step_size"].dims == ("chain", "draw")
    assert result.posterior_predictive["y"].dims[:2] == ("chain", "draw")

    summary = az.summary(result)
    rows = {*(f"beta[{feature}]" for feature in FEATURES), "sigma", "precision"}
    assert set(summary.index) == rows
    az.plot_trace_dist(result)
    az.plot_forest(result)
    plt.close("all")
    result.to_netcdf(tmp_path / "result.nc")
    with az.from_netcdf(tmp_path / "result.nc") as stored:
        assert stored.posterior.identical(posterior)
        assert set(stored.children) == set(result.children)


def test_tuning_draws_can_be_kept(jax_step):
    result = run(jax_step, 20, tune=7, discard_tuned_samples=False)
    assert result.warmup_posterior.sizes["draw"] == 7
    assert result.posterior.sizes["draw"] == 20
    assert set(result.warmup_sample_stats.data_vars) == set(result.sample_stats.data_vars)


@pytest.mark.filterwarnings("ignore:`return_inferencedata=False` is deprecated:FutureWarning")
def test_multitrace_can_be_returned(jax_step):
    trace = run(jax_step, 20, tune=7, return_inferencedata=False)
    assert trace.get_values("mu").shape == (40,)
    assert trace.get_sampler_stats("weight").shape == (40,)


def long_run(step, cores=1, **options):
    return draws_of(run(step, 300, tune=0, cores=cores, mp_ctx="fork", **options))


@pytest.fixture(scope="module")
def whole(numba_step):
    return long_run(numba_step)


@pytest.mark.parametrize("cores", [1, 2])
def test_interrupted_chains_are_kept(cores, numba_step, whole):
    reached = {}

    def interrupt(trace, draw):
        reached[draw.chain] = draw.draw_idx
        # PyMC drops a chain that is much shorter than the others
        if len(reached) == 2 and min(reached.values()) == 199:
            raise KeyboardInterrupt

    part = long_run(numba_step, cores, callback=interrupt)
    chains, draws = part["mu"].shape
    assert chains == 2
    assert draws == 200
    assert_same_bits({name: x[:, :draws] for name, x in whole.items()}, part)


def test_new_data_that_only_the_users_density_reads_are_read():
    with pm.Model() as model:
        shift = pm.Data("shift", np.zeros(100))

        def density(y, mu):
            return pm.logp(pm.Normal.dist(mu, 0.1), y + shift)

        pm.CustomDist("y", pm.Normal("mu", 0, 10), logp=density, observed=np.zeros(100))
        step = sg.CoRVSGLD(step_size=2e-5, backend="jax", **UNTUNED)
    # Posterior sd 0.01
    assert abs(float(run(step, 20, tune=10).posterior["mu"].mean())) < 0.1
    pm.set_data({"shift": np.full(100, 5.0)}, model=model)
    assert abs(float(run(step, 20, tune=10).posterior["mu"].mean()) - 5) < 0.1


@pytest.mark.slow
def test_numba_takes_over_what_jax_cannot_run(caplog):
    with pm.Model():
        mask = pm.Data("mask", np.arange(100) % 2 == 0)
        x = pm.Normal("x", shape=100)
        pm.Normal("y", x[mask].sum(), observed=1.0)
        step = sg.SGLD(step_size=0.01, **UNTUNED)
    with caplog.at_level(logging.INFO):
        result = run(step, 20, tune=0)
    assert np.all(np.isfinite(result.posterior["x"]))
    assert "compiling with numba instead" in caplog.text


def test_sparse_data_are_left_out_of_the_result():
    design = scipy.sparse.csr_matrix(np.eye(3))
    with pm.Model():
        b = pm.Normal("b", shape=(3, 1))
        mean = pytensor.sparse.structured_dot(pm.Data("x", design), b)[:, 0]
        pm.Normal("y", mean, observed=pm.Data("seen", np.zeros(3)))
        dt = pm.sample(
            2, tune=1, chains=1, step=sg.SGLD(step_size=0.01, backend="jax", **UNTUNED),
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    assert dt.posterior["b"].shape == (1, 2, 3, 1)
    assert list(dt.constant_data) == ["seen"]


def test_terms_that_are_added_after_a_run_count_in_the_next():
    with pm.Model():
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("first", mu, 1, observed=np.zeros(10))
        step = sg.SGLD(step_size=1e-4, backend="jax", **UNTUNED)
        run(step, 5, tune=0, chains=1)
        pm.Normal("second", mu, 1, observed=np.ones(1000))
        posterior = run(step, 100, tune=100, chains=1).posterior
    # A posterior sd of 0.03 about 0.99
    assert float(posterior["mu"].mean()) == pytest.approx(0.99, abs=0.1)


def test_deterministics_of_all_rows_that_are_added_after_the_step_are_left_out():
    with pm.Model():
        x = pm.Data("x", np.ones(60))
        b = pm.Normal("b")
        pm.Normal("y", b * x, 1, observed=np.zeros(60))
        step = sg.SGLD(step_size=1e-4, batch_size=10, backend="jax", **UNTUNED)
        pm.Deterministic("of_rows", b * x)
        kept = run(step, 5, tune=0, chains=1).posterior
    assert set(kept) == {"b"}


def test_an_interrupted_run_says_what_it_would_have_said_at_its_end(caplog, monkeypatch):
    advance = Runner.advance

    def interrupt(runner, *args):
        if runner.state.draw == 900:
            raise KeyboardInterrupt
        return advance(runner, *args)

    monkeypatch.setattr(Runner, "advance", interrupt)
    with pm.Model():
        pm.Normal("x")
        # A variance of 2
        step = sg.SGLD(step_size=1.0, backend="jax", **UNTUNED)
    with caplog.at_level(logging.WARNING, logger="pymc"):
        result = run(step, 10_000, tune=0, chains=1)
    assert result.posterior.sizes["draw"] == 900
    assert len([text for text in caplog.messages if "temperature is" in text]) == 1


def test_a_step_that_was_sent_elsewhere_hooks_into_pymc_there(monkeypatch):
    with pm.Model():
        pm.Normal("x")
        sent = cloudpickle.dumps(sg.SGLD(step_size=0.1, **UNTUNED))
    monkeypatch.setattr(mcmc, "init_traces", None)
    monkeypatch.setattr(mcmc, "run_convergence_checks", None)
    cloudpickle.loads(sent)
    assert callable(mcmc.init_traces)
    assert callable(mcmc.run_convergence_checks)
