"""Every sampler takes every gradient estimator."""

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import normal_means
from helpers.steps import drawn, sharing
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
    noise, make = {}, sharing(method)
    for estimator in ("plain", sg.ControlVariates(), sg.SVRG(refresh=40)):
        step = make(
            model=model, step_size=h, batch=scheme, backend="jax",
            **{**UNTUNED, "gradient": estimator, "scale": {"mu": sd}},
        )  # fmt: skip
        draws, stats = zip(*drawn(step, 50, seed=2), strict=True)
        assert all(of_draw["rejected_updates"] == 0 for of_draw in stats)
        noise[type(step.options.gradient).__name__] = np.mean([s["noise_ratio"] for s in stats])
        assert np.all(np.abs(np.array([point["mu"] for point in draws[25:]]) - mean) < 10 * sd)
    # Gradients of a Gaussian differ between places by what no batch changes
    assert noise["ControlVariates"] < 1e-12
    assert noise["SVRG"] < 1e-12
    assert noise["Plain"] > 1e-3
