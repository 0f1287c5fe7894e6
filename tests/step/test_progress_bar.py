"""The columns of PyMC's progress bar."""

import inspect
import re

import pymc as pm
import pytest

from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.steps import normal_and_scale, start
from pymc_sgmcmc.testing import UNTUNED

HEADERS = ["Updates", "Noise", "Rejected"]


def test_pymc_has_the_private_hooks_of_the_progress_bar():
    for name in ("_progressbar_config", "_make_progressbar_update_functions"):
        assert name in vars(sg.SGMCMCStep)
        theirs = inspect.signature(getattr(BlockedStep, name))
        assert inspect.signature(getattr(sg.SGMCMCStep, name)).parameters.keys() == (
            theirs.parameters.keys()
        )


def test_progress_columns_show_what_the_draws_return(jax_step):
    _, [stats] = jax_step.step(start(jax_step))
    columns, fields = jax_step._progressbar_config(n_chains=3)
    assert [column.get_table_column().header for column in columns] == HEADERS
    assert {len(values) for values in fields.values()} == {3}
    [update] = jax_step._make_progressbar_update_functions()
    shown = update(stats)
    assert shown.keys() == {*fields, "failing"}
    assert shown["failing"] is False
    assert update({**stats, "diverging": True})["failing"] is True
    others = [method for method in STEP_METHODS if not issubclass(method, sg.SGMCMCStep)]
    for method in others:
        # CompoundStep merges columns by header, and fields by name
        columns, theirs = method._progressbar_config()
        assert not {column.get_table_column().header for column in columns} & {*HEADERS}
        assert not theirs.keys() & fields.keys()


@pytest.fixture
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")


def test_progress_bar_renders(capsys, wide_terminal, jax_step):
    run(jax_step, 5, seed=None, tune=2, progressbar=True)
    shown = capsys.readouterr().out
    for header in HEADERS:
        assert header in shown
    assert re.search(r"\d\.\d%", shown)


def test_progress_bar_renders_with_steps_of_pymc(capsys, wide_terminal):
    with normal_and_scale() as model:
        pm.Normal("y")
        steps = [
            sg.CoRVSGLD([model["x"]], step_size=0.01, backend="jax", **UNTUNED),
            pm.NUTS([model["s"]]),
            pm.Slice([model["y"]]),
        ]
    run(steps, 5, 1, None, model, tune=2, progressbar=True)
    shown = capsys.readouterr().out
    for header in [*HEADERS, "Divergences", "Steps out"]:
        assert header in shown
