"""Every step of tuning ends in finite numbers or in a sentence that names the step and a cure."""

import re

import numpy as np
import pymc as pm
import pytest

from pymc.exceptions import SamplingError

import pymc_sgmcmc as sg

from helpers import sampling
from helpers.policies import rules_of
from helpers.surfaces import OneScale
from pymc_sgmcmc.kernel.pair_sums import summed_pairs
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.bounds import not_too_stiff
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.check import burn_in, settle
from pymc_sgmcmc.tuning.conditional import Conditional
from pymc_sgmcmc.tuning.curvature import largest_curvatures
from pymc_sgmcmc.tuning.density import jittered
from pymc_sgmcmc.tuning.messages import text_of
from pymc_sgmcmc.tuning.modes import best_mode, newton
from pymc_sgmcmc.tuning.noise import measured_noise
from pymc_sgmcmc.tuning.normal_fit import diagonal_gaussian
from pymc_sgmcmc.tuning.plan import Fit, Plan, Problem, make_plan
from pymc_sgmcmc.tuning.regimes import Regime
from pymc_sgmcmc.tuning.start import Beginning
from pymc_sgmcmc.tuning.surface import TuningError
from pymc_sgmcmc.tuning.trial_chain import Trial
from pymc_sgmcmc.tuning.whiten import bulk_of_full_data, bulk_of_minibatches, rewhitened

D = 4
POLICY = Policy(step_size=0.2, widening=0.02)


class Faulty:
    """N(0, I) with a fault; ``fault(u, g, x, calls)`` returns what is given for U and ∇U."""

    precision = float(np.finfo(float).eps)

    def __init__(self, fault, batch_size, dimension=D):
        self.fault, self.dimension, self.batch_size = fault, dimension, batch_size
        self.n_blocks = 5 if batch_size else 1
        self.unbounded = np.arange(dimension) > 0
        self.circular = np.zeros(dimension, dtype=bool)
        self.widest = np.full(dimension, np.inf)
        self.kinked = False
        self.numbers = 100
        self.sizes = [(50, 10)] if batch_size else []
        self.calls = 0
        self.noise = np.random.default_rng(3).standard_normal((50, dimension))

    def full(self, points):
        self.calls += 1
        with np.errstate(all="ignore"):
            u, g = np.sum(points**2, axis=1) / 2, points.copy()
            return self.fault(u, g, points, self.calls)

    def batch(self, points, rows):
        u, g = self.full(points)
        return u, g + (self.noise[rows[:, 0]] if self.batch_size else 0.0)

    def batch_gradient(self, points, rows):
        return self.batch(points, rows)[1]

    def block(self, points, which):
        return self.full(points)[1] / self.n_blocks

    def pair_sums(self, point, width, signs, rows):
        return summed_pairs(self.batch_gradient, point, width, signs, rows)

    def draw_rows(self, rng, count):
        return rng.integers(0, 50, size=(count, 1 if self.batch_size else 0))


def of_some(value):
    def fault(u, g, x, calls):
        g[:, 1] = value
        return u, g

    return fault


def everywhere(value):
    return lambda u, g, x, calls: (np.full_like(u, value), np.full_like(g, value))


def after(calls_before, value):
    broken = everywhere(value)
    return lambda u, g, x, calls: broken(u, g, x, calls) if calls > calls_before else (u, g)


def outside(radius, value):
    def fault(u, g, x, calls):
        far = np.abs(x).max(axis=1) > radius
        return np.where(far, value, u), np.where(far[:, None], value, g)

    return fault


def curved(curvature):
    """A quadratic of these curvatures along the coordinates."""
    h = np.asarray(curvature, dtype=float)
    return lambda u, g, x, calls: (np.sum(h * x**2, axis=1) / 2, h * x)


def singular(u, g, x, calls):
    total = x.sum(axis=1)
    return total**2 / 2, np.repeat(total[:, None], x.shape[1], axis=1)


def cubic(u, g, x, calls):
    return np.sum(x**3, axis=1), 3 * x**2


def exploding(u, g, x, calls):
    return np.sum(np.exp(x**2), axis=1), 2 * x * np.exp(x**2)


FAULTS = {
    "sound": lambda u, g, x, calls: (u, g),
    **{f"everywhere {v}": everywhere(v) for v in (np.nan, np.inf, -np.inf, 1e300, -1e308)},
    **{f"{v} of one coordinate": of_some(v) for v in (np.nan, np.inf, 1e300, 0.0)},
    **{f"{v} after {n} calls": after(n, v) for n in (1, 4, 20, 60) for v in (np.nan, 0.0)},
    **{f"nan outside {r}": outside(r, np.nan) for r in (1e-6, 0.1, 3)},
    "inf after 4 calls": after(4, np.inf),
    "inf outside 0.1": outside(0.1, np.inf),
    "potential NaN": lambda u, g, x, calls: (np.full_like(u, np.nan), g),
    "potential −inf": lambda u, g, x, calls: (np.full_like(u, -np.inf), g),
    "constant": lambda u, g, x, calls: (0 * u, 0 * g),
    "linear": lambda u, g, x, calls: (x.sum(axis=1), np.ones_like(g)),
    "huge": curved([1e300] * D),
    "huge along one": curved([1, 1, 1, 1e300]),
    "tiny": curved([1e-300] * D),
    "all scales": curved([1e-200, 1, 1e100, 1e200]),
    "flat along one": curved([1, 1, 1, 0]),
    "all falling": curved([-1] * D),
    "saddle": curved([1, -1, 1, -1]),
    "singular": singular,
    "cubic": cubic,
    "exploding": exploding,
}


def numbers(result):
    """Arrays and floats of what a step returns."""
    if isinstance(result, tuple):
        return [n for part in result for n in numbers(part)]
    if isinstance(result, Plan):
        return numbers((result.centre, result.root, result.variance, result.step_size))
    if hasattr(result, "__dataclass_fields__"):
        return numbers(tuple(vars(result).values()))
    return [result] if isinstance(result, np.ndarray | float) else []


def newton_along_some(surface, rng):
    along = Conditional(surface, np.full(D, 0.5), surface.unbounded)
    return newton(along, np.full(D - 1, 0.5), None)


def plan(root):
    def make(surface, rng):
        # A diagonal as the user wishes
        return plan_for(surface, np.zeros(D), root, Regime(), rng)

    return make


def plan_for(surface, centre, root, regime, rng):
    bulk = Fit(centre, root)
    return make_plan(surface, bulk, regime, Problem(POLICY), rng, lambda step: None)


def whole_plan(surface, rng):
    start = np.full(D, 0.5)
    centre, root, _ = find_bulk(Beginning(surface, OneScale(), start), rng, print)
    return plan_for(surface, centre, root, Regime(), rng)


CENTRE, FIT = "the search for the posterior's centre", "the fit of independent normals"
WHITENING = "the measurement of widths and correlations"
NOISE = "the measurement of the gradient noise"
PLAN = "the choice of step size and batches"

# What is run and which steps its error may name
STEPS = {
    "newton": (lambda s, rng: newton(s, np.full(D, 0.5), None), CENTRE),
    "newton on batches": (lambda s, rng: newton(s, np.full(D, 0.5), s.draw_rows(rng, 8)), CENTRE),
    "newton along some coordinates": (newton_along_some, CENTRE),
    "newton from several starts": (
        lambda s, rng: best_mode(s, [np.full(D, x) for x in (0.5, 0, -1)], None, rng, lambda x: x),
        CENTRE,
    ),
    "independent normals": (lambda s, rng: diagonal_gaussian(s, np.full(D, 0.5), rng), FIT),
    "bulk of the full data": (
        lambda s, rng: bulk_of_full_data(s, np.full(D, 0.5), np.eye(D), rng),
        WHITENING,
    ),
    "bulk of minibatches": (
        lambda s, rng: bulk_of_minibatches(s, np.full(D, 0.5), np.eye(D), rng),
        WHITENING,
    ),
    "whitening anew": (lambda s, rng: rewhitened(s, np.zeros(D), np.eye(D), rng), WHITENING),
    "noise": (lambda s, rng: measured_noise(s, np.zeros(D), np.eye(D), rng), NOISE),
    "noise of a diagonal": (lambda s, rng: measured_noise(s, np.zeros(D), np.ones(D), rng), NOISE),
    "plan": (plan(np.eye(D)), f"{NOISE}|{PLAN}"),
    "plan of a diagonal": (plan(np.ones(D)), f"{NOISE}|{PLAN}"),
    "all before the chain": (whole_plan, f"{CENTRE}|{FIT}|{WHITENING}|{NOISE}|{PLAN}"),
}


@pytest.mark.parametrize("batch_size", [0, 10], ids=["full data", "minibatches"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_ends_in_finite_numbers_or_in_a_cure(step, fault, batch_size):
    run, names = STEPS[step]
    try:
        result = run(Faulty(FAULTS[fault], batch_size), np.random.default_rng(0))
    except TuningError as error:
        told = str(error)
        assert fault != "sound"
        assert re.match(f"({names}) ", told)
        assert re.search("initvals=.* or set step_size, thin and batches by hand", told)
        assert not told.endswith(".")
    else:
        assert all(np.all(np.isfinite(n)) for n in numbers(result))


@pytest.mark.parametrize("fault", FAULTS)
def test_curvatures_along_the_way_give_a_finite_step(fault):
    positions = np.random.default_rng(0).standard_normal((8, D))
    for root in (np.eye(D), np.ones(D), np.full(D, 1e-300)):
        surface = Faulty(FAULTS[fault], 0)
        found = largest_curvatures(surface, positions, root, np.random.default_rng(1))
        h = not_too_stiff(0.2, found, POLICY)
        assert np.isfinite(h)
        assert 0 < h <= 0.2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_start_is_finite_or_none(fault):
    surface = Faulty(FAULTS[fault], 0)
    start = jittered(np.zeros(D), np.random.default_rng(0), lambda x: surface.full(x)[0])
    assert start is None or np.all(np.isfinite(start))


def test_a_start_is_not_moved_to_where_the_potential_is_infinite():
    def potential(points):
        return np.where(np.abs(points).max(axis=1) > 0, np.inf, 1e308)

    start = jittered(np.zeros(D), np.random.default_rng(0), potential)
    np.testing.assert_array_equal(start, np.zeros(D))


@pytest.mark.parametrize(
    "root",
    [
        np.zeros(D),
        np.array([1, 1, 1, np.inf]),
        np.array([1, np.nan, 1, 1]),
        np.zeros((D, D)),
        np.ones((D, D)),
        np.diag([1, 1, 1, 0.0]),
        np.full((D, D), np.nan),
    ],
)
@pytest.mark.parametrize("batch_size", [0, 10])
def test_a_plan_on_a_degenerate_whitening_is_refused(root, batch_size):
    surface = Faulty(FAULTS["sound"], batch_size)
    with pytest.raises(TuningError, match=f"^({WHITENING}|{NOISE}|{PLAN}).*initvals="):
        plan(root)(surface, np.random.default_rng(0))


def test_lengths_of_all_scales_are_no_degenerate_whitening():
    root = np.diag([1e-30, 1e-10, 1, 1e20])
    surface = Faulty(curved(np.diag(root) ** -2.0), 0)
    np.testing.assert_array_equal(plan(root)(surface, np.random.default_rng(0)).root, root)


class FakeChain:
    """Draws that are what they are told to be."""

    def __init__(self, psi=None, gradient=None, rejected=0):
        self.psi, self.gradient, self.rejected = psi, gradient, rejected
        self.rng = np.random.default_rng(0)

    def restart(self):
        pass

    def run(self, step_size, thin, draws):
        e = self.rng.standard_normal((draws, 2))
        psi = e if self.psi is None else np.full((draws, 2), self.psi)
        gradient = e if self.gradient is None else np.full((draws, 2), self.gradient)
        return Trial(psi, gradient, self.rejected, np.zeros(2, dtype=bool))


BAD_CHAINS = [
    {"psi": np.nan}, {"psi": np.inf}, {"psi": 0.0}, {"psi": 1e300}, {"gradient": np.nan},
    {"gradient": np.inf}, {"gradient": 1e300}, {"gradient": 0.0}, {"rejected": 3},
    {"psi": 0.0, "gradient": np.inf},
]  # fmt: skip


@pytest.mark.parametrize("chain", BAD_CHAINS, ids=str)
@pytest.mark.parametrize("fixed", [False, True])
def test_a_bad_chain_ends_in_a_warning_or_in_a_cure(chain, fixed):
    curvatures = [None, lambda psi: np.full(len(psi), np.nan), lambda psi: np.zeros(len(psi))]
    for found in curvatures:
        rules = rules_of(POLICY, 20, fixed_step=fixed, fixed_thin=fixed)
        settled = settle(FakeChain(**chain), 0.2, rules, found)
        told = " ".join(map(text_of, settled.warnings))
        assert np.isfinite(settled.step_size)
        assert settled.thin >= 20
        assert any(c in told for c in ("NUTS", "thin", "priors")) or (
            fixed and chain == {"psi": 0.0}
        )
        assert "nan" not in told
    try:
        h, seen = burn_in(FakeChain(**chain), 0.2, 20, fixed_step=fixed, updates=1000)
    except TuningError as error:
        assert "the burn-in" in str(error)
        assert "Pass a smaller step_size" in str(error)
    else:
        assert np.isfinite(h)
        assert np.all(np.isfinite(seen))


def test_a_fit_survives_a_gradient_of_absurd_size():
    """One that is finite, from which the widths would not come back."""

    def fault(u, g, x, calls):
        return (u, 1e150 * g) if calls in (9, 30) else (u, g)

    _, sd = diagonal_gaussian(Faulty(fault, 10), np.full(D, 0.5), np.random.default_rng(0))
    assert np.all(np.abs(np.log(sd)) < np.log(2))


# ---------------------------------------------------------------- a whole run


def test_what_breaks_between_two_steps_names_the_last(monkeypatch):
    def broken(*args, **kwargs):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr("pymc_sgmcmc.tuning.density.rescaled", broken)
    with pm.Model():
        pm.Normal("x")
        step = sg.CoRVSGLD(backend="jax")
    why = (
        r"^Tuning failed: the step 'searching for the posterior's centre' failed "
        r"\(Singular matrix\)\. Pass initvals="
    )
    with pytest.raises(SamplingError, match=why):
        sampling.run(step, 4, 1, tune=0)
