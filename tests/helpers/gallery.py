"""The benchmark's models and its comparison with their references, within tests."""

import sys

from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import signature
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.backends.workarounds import interpreted

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@contextmanager
def measuring(monkeypatch):
    """Return the benchmark's comparison of two chains of a thousand draws with the reference."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accuracy

    sampled = pm.sample

    def sample(*, step=None, **options):
        # Nothing here reads R-hat. What PyMC's own steps compute is compiled
        alone = isinstance(step, sg.SGMCMCStep)
        with interpreted() if alone else nullcontext():
            return sampled(step=step, **{**options, "compute_convergence_checks": False})

    monkeypatch.setattr(pm, "sample", sample)
    yield accuracy.measure
    # Their names are common
    for module in [m for m in sys.modules if m.partition(".")[0] in ("accuracy", "gallery")]:
        del sys.modules[module]


def check(found):
    """Every mean within a tenth of an sd, every sd within a tenth.

    Or within four standard errors, where those are more. The rounding of a processor chooses the
    draws; of the few hundred that Gibbs steps on indicators leave NUTS in our place has no more.
    """
    shown = {key: found[key] for key in ("mean err", "sd min", "sd max", "ESS", "said")}
    assert found["ESS"] > 40, shown
    error = STANDARD_ERRORS / np.sqrt(found["ESS"])
    assert found["mean err"] <= max(0.1, error), shown
    allowed = max(0.1, error / np.sqrt(2))
    assert 1 - allowed <= found["sd min"] <= found["sd max"] <= 1 + allowed, shown


def small_models(monkeypatch):
    """Return the gallery's small models by name, as functions that build them on all rows."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gallery

    def all_rows(make):
        return partial(make, None) if signature(make).parameters else make

    return {name: all_rows(make) for name, make in gallery.SMALL.items()}
