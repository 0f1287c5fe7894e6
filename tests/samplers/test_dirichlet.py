"""Simplexes, by the entropic mirror map and by PyMC's."""

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import chances_of_labels, simplexes
from helpers.z_scores import STANDARD_ERRORS, means_of_parts, z_score
from pymc_sgmcmc.testing import UNTUNED, Moment, Target, check, run_chain


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
    model, law = simplexes(2000)
    target = Target("Dirichlet(2, 3, 5)", model, dirichlet_moments(law.alpha), relaxation=4.0)
    check(target, sg.SMLD, step_size=0.05, transforms=transforms)
    check(target, sg.MSGNHT, step_size=0.1, transforms=transforms, patience=4.0)


def test_dirichlet_multinomial_with_minibatches():
    model, law = chances_of_labels()
    step = sg.SMLD(step_size=2e-4, model=model, **{**UNTUNED, "thin": 200})
    draws = run_chain(model, step, burn=50, draws=750, seed=0)["x"]
    # Gradient noise widens by h σ² / (2 - h) ~ 1 %: it moves means by far less than an error
    assert np.all(np.abs(z_score(means_of_parts(draws[None], 30), law.mean())) < STANDARD_ERRORS)
    np.testing.assert_allclose(draws.std(axis=0), law.var() ** 0.5, rtol=0.1)
