"""Several step methods on one model, with default arguments, against the gallery's references."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.gallery import BENCHMARKS, check

MODELS = (
    "linear_blocks",
    "linear_correlated_blocks",
    "poisson_three_blocks",
    "mixture_blocks",
    "hierarchical_normal_blocks",
    "hierarchical_logit_blocks",
    "mixture_indicators",
    "mixture_indicators_apart",
    "mixture_nuts",
    "signal_indicators",
    "normal_gamma_slice",
    "hierarchical_normal_slice",
    "hierarchical_logit_slice",
    "change_point_metropolis",
)


def test_all_mixed_models_are_here(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gallery

    assert set(MODELS) == set(gallery.MIXED)


@pytest.mark.slow
def test_two_blocks(measure):
    check(measure("linear_blocks", "CoRVSGLD", 1, cores=1, options={"backend": "jax"}))


@pytest.mark.parametrize(("initval", "stands_still"), [(None, True), ([0, 1], False)])
def test_others_begin_unless_discrete_ones_were_given_a_start(initval, stands_still):
    with pm.Model():
        mu = pm.Normal("mu", 0, 5, initval=2.0)
        z = pm.Bernoulli("z", 0.5, shape=2, initval=initval)
        pm.Normal("y", mu * z, 1.0, observed=[3.0, 0.1])
        steps = [sg.CoRVSGLD([mu], backend="jax"), pm.BinaryGibbsMetropolis([z])]
        draws = pm.sample(
            step=steps, draws=2, tune=20, chains=1, random_seed=1, progressbar=False,
            discard_tuned_samples=False, compute_convergence_checks=False,
        )  # fmt: skip
    found = draws.warmup_posterior["mu"].values[0]
    assert (len(np.unique(found[:6])) == 2) == stands_still
    assert (found[0] == 2.0) == stands_still
    assert len(np.unique(found[6:])) == len(found) - 6
    # Nothing was measured
    assert np.isnan(draws.warmup_sample_stats["grad_norm"].values[0, 0]) == stands_still


# The benchmark has all models, both methods and three seeds. These are one for each kind of
# neighbour: a block of ours, indicators, a slice. R-hat of an indicator that takes the same value
# in all draws is 0 / 0.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("hierarchical_logit_blocks", "MSGNHT"),
        ("signal_indicators", "CoRVSGLD"),
        ("normal_gamma_slice", "CoRVSGLD"),
    ],
)
def test_a_model_of_the_benchmark(measure, name, method):
    check(measure(name, method, 2, cores=1, options={"backend": "jax"}))


@pytest.mark.slow
def test_numba(measure):
    check(measure("linear_blocks", "CoRVSGLD", 2, cores=1, options={"backend": "numba"}))
