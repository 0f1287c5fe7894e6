"""The cost of the draws is told before the first of them."""

import re

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.tuning.cost import told_cost


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


def test_what_is_told():
    assert told_cost(10, 20, 1, anchored=False, blocks=1, dimension=3) == (
        "The chain will take 200 updates."
    )
    twice = told_cost(1100, 20, 2, anchored=True, blocks=1000, dimension=50_000)
    assert twice.startswith("The chain will take 22,000 updates of 2 batches: 88 passes")
    assert "compute_convergence_checks=False" in twice
