"""The code of the documentation does what the documentation says."""

import re

from functools import partial
from pathlib import Path

import pymc as pm
import pytest

import pymc_sgmcmc as sg
import pymc_sgmcmc.testing

PAGE = Path(__file__).parents[1] / "docs" / "add_a_sampler.md"


def code_with(text):
    """The one block of Python on the page that holds `text`."""
    if not PAGE.exists():
        pytest.skip("needs the folder docs, which is not part of a source distribution")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if text in block]
    return block


@pytest.fixture
def names():
    """What the sampler's file defines."""
    names = {"__name__": "sghmc"}
    exec(code_with("class SGHMC"), names)
    return names


def check_on(backend, names, monkeypatch, **options):
    on_backend = partial(sg.testing.check_sampler, backends=[backend], **options)
    monkeypatch.setattr(sg.testing, "check_sampler", on_backend)
    exec(code_with("check_sampler("), names)


def test_added_sampler_passes_the_matrix_jax(names, monkeypatch):
    pytest.importorskip("jax")
    check_on("jax", names, monkeypatch, dimensions=[10])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_added_sampler_passes_the_whole_matrix(backend, names, monkeypatch):
    pytest.importorskip(backend)
    check_on(backend, names, monkeypatch)


def test_added_sampler_is_short():
    lines = [line for line in code_with("class SGHMC").splitlines() if line.strip()]
    assert len(lines) <= 45


def test_added_sampler_is_a_step_method(names):
    SGHMC = names["SGHMC"]
    assert 'step_size : "auto", float or callable' in SGHMC.__doc__
    assert "kinetic_temperature" in SGHMC.stats_dtypes_shapes
    with pm.Model(), pytest.raises(ValueError, match=r"^friction must be positive"):
        pm.Normal("x")
        SGHMC(step_size=0.1, friction=0.0)
