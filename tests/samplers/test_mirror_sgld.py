"""Reflected Langevin dynamics: where it is right, where it is wrong, and what it refuses."""

import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc.exceptions import SamplingError
from scipy import stats

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.steps import sharing
from helpers.z_scores import STANDARD_ERRORS, mean_and_error
from pymc_sgmcmc.testing import run_chain

RIGHT = {
    "half-line": (lambda name, n: pm.HalfNormal(name, 1.0, shape=n), stats.halfnorm()),
    "interval": (
        lambda name, n: pm.TruncatedNormal(name, 0.5, 1.0, lower=0.0, upper=2.0, shape=n),
        stats.truncnorm(-0.5, 1.5, loc=0.5),
    ),
    "upper bound": (
        lambda name, n: pm.TruncatedNormal(name, 0.0, 1.0, upper=1.0, shape=n),
        stats.truncnorm(-np.inf, 1.0),
    ),
    "real": (lambda name, n: pm.Normal(name, 0.3, 1.0, shape=n), stats.norm(0.3)),
}


@BOTH
def test_right_where_the_density_is_bounded(backend):
    with pm.Model() as model:
        for name, (build, _) in RIGHT.items():
            build(name, 4000)
        step = sg.MirrorSGLD(step_size=0.01, thin=40, backend=backend)
    draws = run_chain(model, step, burn=12, draws=60, seed=2)
    for name, (_, law) in RIGHT.items():
        quantiles = law.ppf(np.linspace(0.1, 0.9, 9))
        below, se = mean_and_error((draws[name][..., None] < quantiles).mean(axis=0))
        # The bias of Euler's scheme at h = 0.01: 0.0014 on the half-normal
        error = abs(below - law.cdf(quantiles))
        assert np.all(error < STANDARD_ERRORS * se + 0.003), name


def test_wrong_whatever_the_step_where_the_density_is_unbounded():
    make = sharing(sg.MirrorSGLD)
    with pm.Model() as model:
        pm.Beta("x", 0.5, 0.5, shape=2000)
    for h in (0.01, 0.001):
        step = make(step_size=h, thin=40, model=model, unbounded="allow", backend="jax")
        times = int(0.01 / h)
        x = run_chain(model, step, burn=5 * times, draws=20 * times, seed=1)["x"]
        mean, se = mean_and_error(((x - 0.5) ** 2).mean(axis=0))
        sd, error = np.sqrt(mean), se / (2 * np.sqrt(mean))
        # That of a uniform variable, not of the arcsine law, 0.354
        assert abs(sd - 0.287) < STANDARD_ERRORS * error + 0.0015


@pytest.mark.parametrize(
    ("build", "bound"),
    [
        (lambda: pm.Beta("x", 2.0, 0.5), "bound 1"),
        (lambda: pm.Gamma("x", 0.5, 2.0, shape=3), "bound 0"),
        (lambda: pm.Beta("x", [2.0, 0.5], [2.0, 2.0]), "bound 0"),
    ],
)
def test_unbounded_density_is_refused(build, bound):
    with pm.Model():
        build()
        step = sg.MirrorSGLD(step_size=0.01, backend="jax")
        with pytest.raises(SamplingError, match=f"'x' grows without limit towards its {bound}"):
            pm.sample(step=step, draws=2, tune=0, chains=1, progressbar=False)


def test_bounds_without_a_transform_of_the_model():
    with pm.Model() as model:
        pm.HalfNormal("x", 1, shape=100, default_transform=None)
        step = sg.MirrorSGLD(step_size=0.01, backend="jax")
    assert step.kinds == ("half-line",)
    assert run_chain(model, step, burn=0, draws=50, seed=1)["x"].min() > 0


def test_other_supports_are_refused():
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        with pytest.raises(NotImplementedError, match="'p' is of the kind simplex"):
            sg.MirrorSGLD([p], step_size=0.01)
        with pytest.raises(ValueError, match="unbounded"):
            sg.MirrorSGLD([p], step_size=0.01, unbounded="maybe")


def test_single_precision():
    """A start in θ keeps the dtype of the model's values."""
    pytest.importorskip("jax")
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        pm.Beta("x", 2.0, 2.0, shape=3)
        step = sg.MirrorSGLD(step_size=0.001, thin=5, backend="jax")
        x = run_chain(model, step, burn=1, draws=3, seed=1)["x"]
    assert x.dtype == np.float32
    assert ((x > 0) & (x < 1)).all()
