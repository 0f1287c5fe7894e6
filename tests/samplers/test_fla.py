"""Fractional Langevin dynamics against the exact stable law."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.laws import stable_scale
from pymc_sgmcmc.testing import UNTUNED, Moment, Target, check, run_chain


@pytest.mark.parametrize(("alpha", "h"), [(1.2, 0.1), (1.5, 0.3), (1.8, 0.1)])
def test_fla_has_its_exact_stable_law(alpha, h):
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    law = stats.levy_stable(alpha, 0, scale=stable_scale(alpha, h))
    quantiles = law.ppf(levels)
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=(20_000, 1))
    moments = [
        Moment(f"P(x < {q:.3f})", lambda x, q=q: (x < q).mean(axis=-1), level)
        for level, q in zip(levels, quantiles, strict=True)
    ]
    target = Target(f"N(0, 1), SαS α = {alpha}", model, moments)
    make_step = partial(sg.FLA, alpha=alpha, largest_drift=None, largest_jump=None)
    check(target, make_step, step_size=h, draws=20)


def test_tamed_fla_survives_where_the_untamed_diverges():
    with pm.Model() as model:
        x = pm.Flat("x", shape=50, initval=np.zeros(50))
        pm.Potential("quartic", -(x**4).sum() / 4)
    with model:
        tamed = sg.FLA(step_size=0.05, alpha=1.5, **UNTUNED)
        untamed = sg.FLA(
            step_size=0.05, alpha=1.5, largest_drift=None, largest_jump=None, **UNTUNED
        )
    draws = run_chain(model, tamed, burn=10, draws=100, seed=1)["x"]
    assert np.all(np.isfinite(draws))
    with pytest.raises(AssertionError, match="not finite"):
        run_chain(model, untamed, burn=10, draws=100, seed=1)
