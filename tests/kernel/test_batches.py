"""Batches in the sampler: unbiased, and fresh at every update."""

from math import lcm

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.minibatched_models import reference, regression, two_batches, with_batches
from helpers.recorders import Recorder
from helpers.sampling import QUIET
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.program import Program
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.testing import UNTUNED


class FromStart(Recorder):
    """A recorder without tuning."""

    def run(self, seed, phi):
        """Return the gradients of a new chain's updates, shape (thin, dimension)."""
        self.setup_chain(np.random.default_rng(seed), 0, 1)
        self.chain.settings = Settings(thin=self.options.thin)
        return self.record(phi)


UPDATES = lcm(60, 45)
pytestmark = pytest.mark.usefixtures("no_draws_ahead")


# One batch of rows that follow one another is in test_gradients.py
@pytest.fixture(
    scope="module",
    params=[(regression, "random"), (two_batches, "shuffled")],
    ids=["regression-random", "two_batches-shuffled"],
)
def recorded(request):
    """A recorder, a position, and the gradient of the full data there."""
    build, scheme = request.param
    phi, _, gradient = reference(build)
    model = with_batches(build)
    with model:
        recorder = FromStart(
            step_size=1.0, batch=scheme, transforms="model", **{**UNTUNED, "thin": UPDATES}
        )
    return recorder, phi, -gradient


def draw_every_offset_equally_often(program, rng, transition, updates, left):
    batches = []
    for minibatch, arrays in zip(
        program.posterior.minibatches, program.posterior.arrays, strict=True
    ):
        offsets = np.arange(updates + transition.fresh, dtype=np.int32)
        if not transition.layout.contiguous:
            offsets = offsets[:, None] + np.arange(minibatch.batch_size, dtype=np.int32)
        batches.append(offsets % len(arrays[0]))
    return batches


def test_average_over_all_batches_is_the_full_gradient(recorded, monkeypatch):
    recorder, phi, full = recorded
    monkeypatch.setattr(Program, "draw_batches", draw_every_offset_equally_often)
    mean = recorder.run(1, phi).mean(axis=0)
    np.testing.assert_allclose(mean, full, rtol=0, atol=1e-12 * abs(full).max())


def test_batch_gradient_is_unbiased(recorded):
    recorder, phi, full = recorded
    means = np.array([recorder.run(seed, phi).mean(axis=0) for seed in range(60)])
    z = z_score(means, full)
    assert abs(z).max() < STANDARD_ERRORS


def test_batch_is_fresh_at_every_update(recorded):
    recorder, phi, _ = recorded
    distinct = len(np.unique(recorder.run(2, phi)[:, 0]))
    # The same rows are added in the same order
    offsets = 60 * (1 - (1 - 1 / 60) ** UPDATES)
    least = offsets if recorder.options.batch == "shuffled" else UPDATES
    assert distinct >= least - 5


def test_batches_are_new_at_every_update_and_in_every_chain(monkeypatch):
    drawn, orders = [], []
    original = Program.draw_batches, Engine.tables

    def draw_batches(program, rng, transition, updates, left):
        batches = original[0](program, rng, transition, updates, left)
        if rng is step._chain.batch_rng:  # not at the start, where the density is only looked at
            drawn.append(batches)
        return batches

    def tables(engine, row_order):
        orders.append(row_order)
        return original[1](engine, row_order)

    monkeypatch.setattr(Program, "draw_batches", draw_batches)
    monkeypatch.setattr(Engine, "tables", tables)
    with pm.Model():
        y = pm.Minibatch(np.arange(100_000.0), batch_size=5)
        pm.Normal("y", pm.Normal("mean"), 1e6, observed=y, total_size=100_000)
        step = sg.CoRVSGLD(step_size=1e-6, **UNTUNED)
        for _ in range(2):
            dt = pm.sample(step=step, draws=20, tune=5, chains=2, cores=1, random_seed=1, **QUIET)
    assert dt.sample_stats.sizes["draw"] == 20
    offsets = np.array([batch[-20:] for [batch] in drawn])
    assert offsets.shape == (2 * 2 * 25, 20)
    first, second = offsets[:50], offsets[50:]
    # The seed of pm.sample reaches the batches and the order of the rows
    np.testing.assert_array_equal(first, second)
    half = len(orders) // 2
    assert orders[:half] == orders[half:]
    assert len(set(orders)) == 2
    # 1,000 offsets out of 100,000: five are expected to be a repetition
    assert len(np.unique(first)) > 980
    assert offsets.min() >= 0
    assert offsets.max() < 100_000
