"""Attempts with bad input: a step that is built, a short chain, and the error that they end in."""

import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.testing import UNTUNED


def mixed():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.HalfNormal("s")
        pm.Bernoulli("k", 0.5)
    return model


def location_and_scale(observed=(1.0, 2.0)):
    with pm.Model() as model:
        x = pm.Normal("x")
        s = pm.HalfNormal("s")
        pm.Normal("y", x, s, observed=observed)
    return model


def built(model=mixed, method=sg.SGLD, **options):
    """Construct a step, and do no more."""
    return lambda: method(model=model(), **{"step_size": 0.1, **options})


def sampled(model=location_and_scale, method=sg.SGLD, draws=30, initvals=None, **options):
    """Sample a short chain."""

    def attempt():
        with model():
            step = method(**{"step_size": 0.1, "backend": "jax", **UNTUNED, **options})
        run(step, draws, 1, tune=0, initvals=initvals)

    return attempt


def cases(rows):
    """Decorate a test of rows: of each an id, what is done, and the error as ``check`` wants it."""
    return pytest.mark.parametrize(
        ("bad", "exception", "name", "cure"), [pytest.param(*row[1:], id=row[0]) for row in rows]
    )


def check(bad, exception, name, cure):
    """The exception, and no subclass, has a message with the name and the cure."""
    with pytest.raises(exception, match=name) as info:
        bad()
    assert info.match(cure)
    assert type(info.value) is exception
