"""Gradient estimators: unbiased, and as noisy as they should be."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from helpers.recorders import Recorder
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.kernel.potential import gradient_at_anchor
from pymc_sgmcmc.kernel.program import Program
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.testing import UNTUNED

pytestmark = pytest.mark.usefixtures("no_draws_ahead")
ROWS, BATCH, UPDATES = 60, 7, 120


def regression(*, batched=True):
    """Gradients of it are not linear in the position, so that a batch's noise varies with it."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 2)), rng.normal(size=ROWS)
    with pm.Model() as model:
        if batched:
            x, y = pm.Minibatch(x, y, batch_size=BATCH)
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=2)
        sd = pm.HalfNormal("sd", 1.0)
        pm.Normal("y", x @ slopes, sd, observed=y, total_size=ROWS if batched else None)
    return model


# φ of (slopes, log sd), and where the anchor is; m and L of the whitening
HERE = [np.array([0.3, -0.4]), np.array(-0.2)]
ANCHOR = [np.array([0.1, -0.2]), np.array(0.1)]
CENTRE = [np.array([0.2, 0.1]), np.array(0.3)]
ROOT = np.array([[0.5, 0.0, 0.1], [0.2, 0.8, 0.0], [-0.1, 0.3, 0.4]])


class Anchored(Recorder):
    """A recorder in whitened coordinates, which may have an anchor."""

    def start(self, seed, anchored, refresh=None):
        """Start a chain whose tuning is set by hand."""
        self.setup_chain(np.random.default_rng(seed), 0, 100)
        anchor, gradient, blocks = [], [], []
        if anchored == "blocks":
            anchor, (gradient, blocks) = ANCHOR, blocks_at_anchor(self)
        elif anchored:
            if not hasattr(self, "at_anchor"):
                self.at_anchor = full_gradient(self, ANCHOR)
            anchor, gradient = ANCHOR, [self.at_anchor]
        self.chain.settings = Settings(
            CENTRE, ROOT, anchor=anchor, anchor_gradient=gradient, anchor_blocks=blocks,
            refresh=refresh, row_order=self.chain.row_order,
            thin=UPDATES, batches=self.options.batches,
        )  # fmt: skip

    def record(self, phi):
        """Return the gradients of the next updates at φ, shape (updates, dimension)."""
        whitening = self.chain.settings.whitening()
        return super().record(whitening.to_psi(phi, whitening.arrays))

    def run(self, seed, phi, anchored):
        """Return the gradients of a new chain."""
        self.start(seed, anchored)
        return self.record(phi)


def full_gradient(step, phi):
    """∇U of the full data with respect to ψ, as tuning has it."""
    engine = step._engine_at(step.point)
    potential = engine.potential_at(0, [], [])
    return potential.full(potential.join(phi)[None])[1][0] @ ROOT


def blocks_at_anchor(step):
    """∇U at the anchor with respect to ψ, and what each block of the chain's rows says of it."""
    engine = step._engine_at(step.point)
    potential = engine.potential_at(step.chain.row_order, [], [])
    whitening = Settings(CENTRE, ROOT).whitening()
    return gradient_at_anchor(potential, whitening, ANCHOR, blocks=True)


@cache
def recorder(scheme, batches):
    """Return a recorder; those of one scheme share what is compiled, which has no state."""
    options = {**UNTUNED, "thin": UPDATES, "batches": batches, "transforms": "model"}
    if batches == 1:
        return Anchored(step_size=1.0, batch=scheme, backend="jax", model=regression(), **options)
    first = recorder(scheme, 1)
    step = Anchored(step_size=1.0, batch=scheme, backend="jax", model=first.model, **options)
    step._engine = first._engine_at(first.point)
    return step


@pytest.fixture(scope="module", params=["shuffled", pytest.param("random", marks=pytest.mark.slow)])
def recorders(request):
    """Recorders of one batch and of three."""
    return {batches: recorder(request.param, batches) for batches in (1, 3)}


def test_full_gradient_is_that_of_pymc():
    step = recorder("shuffled", 1)
    of_pymc = regression(batched=False).compile_dlogp(mode="FAST_COMPILE")
    expected = -of_pymc({"slopes": HERE[0], "sd_log__": HERE[1]})
    np.testing.assert_allclose(full_gradient(step, HERE), expected @ ROOT, rtol=1e-10)


def every_offset_equally_often(program, rng, transition, updates, left):
    """Batches from each of the rows' offsets, each as often in each of the K places."""
    count, batches = updates + transition.fresh, transition.layout.averaged
    offsets = np.arange(count)[:, None] + 11 * np.arange(batches)
    if not transition.layout.contiguous:
        offsets = offsets[..., None] + np.arange(BATCH)
    drawn = (offsets % ROWS).astype(np.int32)
    return [drawn[:, 0] if batches == 1 else drawn]


@pytest.mark.parametrize("anchored", [False, True], ids=["plain", "anchored"])
def test_average_over_all_batches_is_the_full_gradient(recorders, anchored, monkeypatch):
    step = recorders[3]
    monkeypatch.setattr(Program, "draw_batches", every_offset_equally_often)
    found = step.run(1, HERE, anchored)
    expected = full_gradient(step, HERE)
    np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-11)
    assert np.all(found.std(axis=0) > 0.01 * abs(expected).max())


@pytest.mark.parametrize("anchored", [False, True], ids=["plain", "anchored"])
@pytest.mark.parametrize("batches", [1, 3])
def test_drawn_batches_are_unbiased(recorders, batches, anchored):
    # Chains are independent: each has an order of the rows of its own
    step = recorders[batches]
    means = np.array([step.run(seed, HERE, anchored).mean(axis=0) for seed in range(60)])
    assert abs(z_score(means, full_gradient(step, HERE))).max() < STANDARD_ERRORS


def test_svrg_is_unbiased_between_refreshes(recorders):
    step = recorders[3]
    means = []
    for seed in range(60):
        # The anchor is taken where the chain is at first, and stays for two draws
        step.start(seed, anchored=True, refresh=2 * UPDATES)
        at_anchor = step.record(CENTRE)
        away = step.record(HERE)
        means.append(away.mean(axis=0))
        for found, expected in zip(step.chain.settings.anchor, CENTRE, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-12)
    expected = full_gradient(step, CENTRE)
    np.testing.assert_allclose(at_anchor, np.broadcast_to(expected, at_anchor.shape), rtol=1e-10)
    assert np.all(away.std(axis=0) > 0)
    assert abs(z_score(np.array(means), full_gradient(step, HERE))).max() < STANDARD_ERRORS


@pytest.mark.parametrize(
    ("batches", "joined"), [pytest.param(1, 1, marks=pytest.mark.slow), (6, 3)]
)
def test_blocks_with_known_gradients_are_unbiased(batches, joined, monkeypatch):
    step = recorder("shuffled", batches)
    assert ROWS % BATCH  # the last block is a short one
    groups = -(-ROWS // BATCH) // joined

    def every_group_equally_often(program, rng, transition, updates, left):
        assert transition.layout.groups == groups
        assert transition.layout.averaged == batches // joined
        numbers = np.arange(updates + transition.fresh)[:, None] + np.arange(
            transition.layout.averaged
        )
        drawn = (numbers % groups).astype(np.int32)
        return [drawn[:, 0] if transition.layout.averaged == 1 else drawn]

    with monkeypatch.context() as patch:
        patch.setattr(Program, "draw_batches", every_group_equally_often)
        each = step.run(1, HERE, "blocks")[: UPDATES // groups * groups]
        np.testing.assert_allclose(each.mean(axis=0), full_gradient(step, HERE), rtol=1e-11)
        assert np.all(each.std(axis=0) > 0.01 * abs(each).max())
        # What is known of the blocks is what the same graph would find
        at_anchor = step.run(1, ANCHOR, "blocks")
        full = full_gradient(step, ANCHOR)
        np.testing.assert_allclose(at_anchor, np.broadcast_to(full, at_anchor.shape), rtol=1e-10)
    means = np.array([step.run(seed, HERE, "blocks").mean(axis=0) for seed in range(60)])
    assert np.all(np.abs(z_score(means, full_gradient(step, HERE))) < STANDARD_ERRORS)
    # Blocks of other rows would be silently wrong
    step.chain.row_order += 1
    with pytest.raises(ValueError, match="another order of the rows"):
        step.record(HERE)


def test_no_noise_at_the_anchor(recorders):
    for batches, step in recorders.items():
        found = step.run(3, ANCHOR, anchored=True)
        expected = full_gradient(step, ANCHOR)
        assert np.all(found.std(axis=0) < 1e-12 * abs(expected).max()), batches
        np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-11)


@pytest.mark.parametrize("anchored", [False, True], ids=["plain", "anchored"])
def test_averaging_batches_divides_the_variance(recorders, anchored):
    """By K where batches are independent, by more where together they share no rows."""
    share = 1 / 3
    if recorders[1].options.batch == "shuffled":
        # Sampling without replacement: the variance of n of N rows' mean falls as (N - n) / n
        share = (ROWS - 3 * BATCH) / (3 * (ROWS - BATCH))
    excess = []
    for seed in range(100):
        one, three = (recorders[k].run(seed, HERE, anchored).var(axis=0, ddof=1) for k in (1, 3))
        excess.append(three - share * one)
    assert abs(z_score(np.array(excess), 0.0)).max() < STANDARD_ERRORS


def test_control_variates_are_quieter_near_the_anchor(recorders):
    step = recorders[1]
    near = [x + 0.05 for x in ANCHOR]
    plain, anchored = (step.run(4, near, a).var(axis=0) for a in (False, True))
    # The noise grows as the squared distance: 0.05 from the anchor it is a few hundredths
    assert np.all(anchored < 0.1 * plain)
