"""The cost of the draws is told before the first of them."""

import re

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.kernel.estimators import ControlVariates, Plain
from pymc_sgmcmc.tuning.cost import told_cost
from pymc_sgmcmc.tuning.cost_bounds import largest_thin


def test_passes_are_those_of_the_updates(caplog):
    rng = np.random.default_rng(1)
    y = rng.normal(size=4000)
    with pm.Model():
        seen = pm.Minibatch(y, batch_size=100)
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=seen, total_size=len(y))
        with caplog.at_level("INFO", logger="pymc.sgmcmc"):
            stats = run(sg.CoRVSGLD(), chains=1, draws=30, tune=10).sample_stats
    told = re.search(r"will take ([\d,]+) updates of (\d+) batch(?:es)?: ([\d,.]+)", caplog.text)
    updates, batches, passes = (float(x.replace(",", "")) for x in told.groups())
    assert updates == 40 * stats["thin"].values[0, -1]
    assert batches == stats["batches"].values[0, -1]
    # Gradients at the anchor of all blocks are kept
    assert passes == float(f"{updates * batches / 40:.3g}")


def test_all_rows_in_place_of_batches_are_told(caplog):
    y = np.random.default_rng(1).normal(size=400)
    for batches, told in ((4, True), (2, False)):
        caplog.clear()
        with pm.Model(), caplog.at_level("INFO", logger="pymc.sgmcmc"):
            mu = pm.Normal("mu", 0, 10)
            pm.Normal("y", mu, 1, observed=pm.Minibatch(y, batch_size=100), total_size=len(y))
            run(sg.CoRVSGLD(batches=batches), chains=1, draws=5, tune=5)
        assert ("updates are of all rows" in caplog.text) == told


def test_what_is_told():
    assert told_cost(10, 20, 1, anchored=False, blocks=1, dimension=3) == (
        "The chain will take 200 updates."
    )
    twice = told_cost(1100, 20, 2, anchored=True, blocks=1000, dimension=500_000)
    assert twice.startswith("The chain will take 22,000 updates of 2 batches: 88 passes")
    assert "compute_convergence_checks=False" in twice


@pytest.mark.parametrize(
    ("gradient", "batches", "thin"),
    [
        (Plain(), 1, 2560),
        (ControlVariates(), 1, 2560),
        (ControlVariates(), 8, 640),
        (ControlVariates(), 100, 40),
        (Plain(), 100, 100),
    ],
)
def test_the_gradients_of_a_draw_are_bounded(gradient, batches, thin):
    plan = SimpleNamespace(many=False, gradient=gradient, batches=batches)
    assert largest_thin(plan, 20, 1000) == thin


def test_a_thin_that_costs_too_much_is_no_reason_for_less_than_it():
    plan = SimpleNamespace(many=False, gradient=Plain(), batches=100)
    assert largest_thin(plan, 500, 1000) == 500
