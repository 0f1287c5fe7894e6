"""What draws record of each variable."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error_of_chain
from pymc_sgmcmc.chain.by_variable import ByVariable
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.testing import UNTUNED


def by_variable(settings, psi, sizes, circular=()):
    on_line = [k for k in range(sum(sizes)) if k not in circular]
    posterior = SimpleNamespace(
        coordinates=[SimpleNamespace(name=f"v{k}") for k in range(len(sizes))],
        on_line=lambda parts: [np.concatenate(parts)[on_line]],
    )
    engine = SimpleNamespace(posterior=posterior, weights=lambda scales: {"v1": np.array([0, 1])})
    return ByVariable(engine, SimpleNamespace(settings=settings, psi=psi, scales=[]))


def test_the_excess_is_that_of_the_variances_of_a_whitened_variable():
    """Var φ_i = Σ_j L_ij² T_j, and a variable's temperature is the mean over its elements."""
    rng = np.random.default_rng(1)
    root, temperatures = rng.normal(size=(5, 5)), rng.uniform(0.5, 2, size=5)
    exact = np.diag(root * temperatures @ root.T) / np.diag(root @ root.T)
    settings = Settings(
        centre=[np.zeros(2), np.zeros((1, 3))], root=root, noise=[0.5, np.nan],
    )  # fmt: skip
    found = by_variable(settings, [np.zeros(5)], [2, 3])
    assert found.temperatures(np.ones(5), temperatures) == pytest.approx(
        {"config_temperature[v0]": exact[:2].mean(), "config_temperature[v1]": exact[2:].mean()}
    )
    np.testing.assert_equal(
        found.constant, {"noise[v0]": 0.5, "noise[v1]": np.nan, "centring[v1]": 0.5}
    )


def test_circles_have_no_temperature():
    psi = [np.zeros(2), np.zeros(1)]
    found = by_variable(Settings(), psi, [2, 1], circular=(0, 2))
    np.testing.assert_equal(
        found.temperatures(np.ones(1), np.full(1, 3.0)),
        {"config_temperature[v0]": 3.0, "config_temperature[v1]": np.nan},
    )


def test_a_step_that_is_too_large_for_one_variable_is_seen_there():
    with pm.Model():
        pm.Normal("x", shape=50)
        pm.Normal("y", sigma=2, shape=50)
        step = sg.SGLD(step_size=0.4, backend="jax", **{**UNTUNED, "thin": 5})
        stats = run(step, draws=500, tune=50, chains=1).sample_stats
    # Var = σ² / (1 − h / 2σ²)
    for name, exact in (("x", 1 / 0.8), ("y", 1 / 0.95)):
        mean, error = mean_and_error_of_chain(stats[f"config_temperature[{name}]"].values[0])
        assert abs(mean - exact) < STANDARD_ERRORS * error
        assert error < 0.02


def test_two_variables_of_which_more_than_the_limit_would_be_watched():
    with pm.Model():
        pm.Normal("x", shape=1025)
        pm.Normal("y", shape=1023)
        step = sg.SGLD(step_size=1e-3, backend="jax", **UNTUNED)
        stats = run(step, draws=2, tune=0, chains=1).sample_stats
    assert np.isfinite(stats["config_temperature[y]"]).all()
