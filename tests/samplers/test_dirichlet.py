"""Simplexes, by the entropic mirror map and by PyMC's."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.z_scores import STANDARD_ERRORS, means_of_parts, z_score
from pymc_sgmcmc.testing import (
    UNTUNED,
    Moment,
    Target,
    check,
    run_chain,
)


def dirichlet_moments(alpha):
    total = alpha.sum()
    means = alpha / total
    return [
        *[Moment(f"mean {i}", lambda x, i=i: x[..., i], m) for i, m in enumerate(means)],
        *[
            Moment(f"square {i}", lambda x, i=i: x[..., i] ** 2, a * (a + 1) / total / (total + 1))
            for i, a in enumerate(alpha)
        ],
        Moment(
            "product 0 1",
            lambda x: x[..., 0] * x[..., 1],
            alpha[0] * alpha[1] / total / (total + 1),
        ),
    ]


@pytest.mark.parametrize("transforms", ["mirror", pytest.param("model", marks=pytest.mark.slow)])
def test_dirichlet(transforms):
    alpha = np.array([2.0, 3.0, 5.0])
    with pm.Model() as model:
        pm.Dirichlet("x", np.tile(alpha, (2000, 1)))
    target = Target("Dirichlet(2, 3, 5)", model, dirichlet_moments(alpha), relaxation=4.0)
    check(target, sg.SMLD, step_size=0.05, transforms=transforms)
    check(target, sg.MSGNHT, step_size=0.1, transforms=transforms, patience=4.0)


def test_dirichlet_multinomial_with_minibatches():
    rng = np.random.default_rng(0)
    rows, categories = 400, 4
    labels = rng.choice(categories, p=[0.1, 0.2, 0.3, 0.4], size=rows)
    counts = np.eye(categories)[labels]
    alpha = np.array([0.5, 1.0, 1.0, 2.0])
    posterior = alpha + counts.sum(axis=0)
    with pm.Model() as model:
        x = pm.Dirichlet("x", alpha)
        batch = pm.Minibatch(counts.astype("int32"), batch_size=100)
        pm.Multinomial("y", n=1, p=x, observed=batch, total_size=rows)
        step = sg.SMLD(step_size=2e-4, **{**UNTUNED, "thin": 200})
    draws = run_chain(model, step, burn=50, draws=750, seed=0)["x"]
    mean = posterior / posterior.sum()
    sd = np.sqrt(mean * (1 - mean) / (posterior.sum() + 1))
    # Gradient noise widens by h σ² / (2 - h) ~ 1 %: it moves means by far less than an error
    assert np.all(np.abs(z_score(means_of_parts(draws[None], 30), mean)) < STANDARD_ERRORS)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.1)
