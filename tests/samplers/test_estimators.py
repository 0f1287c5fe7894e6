"""Every sampler takes every gradient estimator."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import normal_means, regression
from helpers.sampling import QUIET
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts
from pymc_sgmcmc.testing import UNTUNED

SAMPLERS = {
    "CoRVSGLD": (sg.CoRVSGLD, 1e-2),
    "FLA": (sg.FLA, 1e-2),
    "MSGNHT": (sg.MSGNHT, 5e-2),
    "SMLD": (sg.SMLD, 1e-2),
    "SGLD": (sg.SGLD, 1e-2),
}


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("MSGNHT", "shuffled"),
        *(
            pytest.param(name, scheme, marks=pytest.mark.slow)
            for name, scheme in zip(SAMPLERS, ("random", "shuffled") * 3, strict=False)
            if name != "MSGNHT"
        ),
    ],
)
def test_every_sampler_takes_every_estimator(name, scheme):
    method, h = SAMPLERS[name]
    # Nothing that is not Gaussian
    data = np.random.default_rng(1).normal([1.0, -2.0], 3.0, size=(900, 2))
    model, mean, sd = normal_means(data, 3.0, batch_size=90)
    noise, engine = {}, None
    for estimator in ("plain", sg.ControlVariates(), sg.SVRG(refresh=40)):
        step = method(
            model=model, step_size=h, batch=scheme, backend="jax",
            **{**UNTUNED, "gradient": estimator, "scale": {"mu": sd}},
        )  # fmt: skip
        step._engine = engine
        step.setup_chain(np.random.default_rng(2), 0, 50)
        point, draws, ratios = model.initial_point(), [], []
        for _ in range(50):
            point, [stats_of_draw] = step.step(point)
            draws.append(point["mu"])
            ratios.append(stats_of_draw["noise_ratio"])
            assert stats_of_draw["rejected_updates"] == 0
        engine = step._engine
        noise[type(step.options.gradient).__name__] = np.mean(ratios)
        assert np.all(np.abs(np.array(draws[25:]) - mean) < 10 * sd)
    # Gradients of a Gaussian differ between places by what no batch changes
    assert noise["ControlVariates"] < 1e-12
    assert noise["SVRG"] < 1e-12
    assert noise["Plain"] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [sg.ControlVariates(), sg.SVRG(refresh=1000)], ids=repr)
def test_both_anchors_give_the_exact_posterior(estimator):
    model, exact = regression()
    with model:
        posterior = pm.sample(
            step=sg.CoRVSGLD(gradient=estimator, backend="jax"),
            draws=1500, chains=2, cores=1, random_seed=3, **QUIET,
        ).posterior  # fmt: skip
    for name, (mean, sd) in exact.items():
        draws = posterior[name].values
        # 30 consecutive batches of 50 draws in each chain: far longer than the chain remembers
        for power, expected in ((1, 0.0), (2, 1.0)):
            moments = ((draws - mean) / sd) ** power
            found, error = mean_and_error(means_of_parts(moments, 30))
            # LM's own bias is of second order, h² / 4 of a variance at h = 0.2
            allowed = STANDARD_ERRORS * error + 0.01 * (power - 1)
            assert np.all(np.abs(found - expected) < allowed), (name, power, found, error)
