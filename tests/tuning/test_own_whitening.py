"""A whitening by the user: a function of the root of tuning's Gaussian."""

from functools import partial
from inspect import cleandoc
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import slopes_of
from helpers.policies import LM, THERMOSTAT
from helpers.sampling import run
from helpers.surfaces import Gaussian, rotated
from helpers.surfaces_of_rows import Noisy
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.tuning.plan import Fit, Problem, make_plan
from pymc_sgmcmc.tuning.regimes import Regime
from pymc_sgmcmc.tuning.rounds import Rounds
from pymc_sgmcmc.tuning.surface import TuningError

D = 6


def documented():
    """Return the function in the docstring of every step method."""
    _, _, example = cleandoc(sg.CoRVSGLD.__doc__).partition("what they leave::\n")
    lines = []
    for line in example.splitlines():
        if line and not line.startswith(" " * 8):
            break
        lines.append(line)
    names = {"np": np}
    exec(cleandoc("\n".join(lines)), names)
    return names["two_directions"]


TWO_DIRECTIONS = documented()


def sds(root):
    return np.sqrt(np.sum(root**2, axis=1))


def ten_times_too_narrow(root):
    return 0.1 * root


def covariance():
    """Return that of three directions, sds apart, and unequal scales."""
    shared = np.random.default_rng(3).normal(size=(D, 3)) * [3.0, 2.0, 0.5]
    scales = np.geomspace(0.01, 10, D)
    return scales[:, None] * (shared @ shared.T + np.eye(D)) * scales


def plan_of(scale, root, policy=LM, surface=None):
    d = len(root)
    surface = surface or Gaussian(np.zeros(d), np.eye(d))
    regime = Regime(diagonal=root.ndim == 1)
    return make_plan(
        surface, Fit(np.full(d, 5.0), root), regime, Problem(policy, Options(), scale),
        np.random.default_rng(0), lambda step: None,
    )  # fmt: skip


# ---------------------------------------------------------------------- what is asked for


def test_the_documented_example_keeps_two_directions_and_all_sds():
    root = np.linalg.cholesky(covariance())
    made = TWO_DIRECTIONS(root)
    np.testing.assert_allclose(sds(made), sds(root))
    unit = sds(root)[:, None]
    both = [np.linalg.eigh((x / unit) @ (x / unit).T) for x in (root, made)]
    rest = both[1][0][:-2]
    assert np.all(rest > 0)
    # Along the kept directions the variance is that of L, and what the sds leave
    kept = both[0][1][:, -2:]
    of_made = np.sum((kept.T @ (made / unit)) ** 2, axis=1)
    assert np.all(of_made > both[0][0][-2:])
    np.testing.assert_array_equal(TWO_DIRECTIONS(np.ones(3)), np.ones(3))


@pytest.mark.parametrize("policy", [LM, THERMOSTAT], ids=["squared length", "length"])
def test_steps_are_those_of_the_narrowest_direction(policy):
    """In any units of the whitened coordinates, which trials see in the Gaussian's sds."""
    root = np.linalg.cholesky(np.linalg.inv(rotated(D, 100)))
    one, tenth = plan_of("auto", root, policy), plan_of(ten_times_too_narrow, root, policy)
    np.testing.assert_allclose(tenth.unit, 10)
    # Longer steps would be too long for a thermostat's friction
    np.testing.assert_allclose(tenth.step_size, {1: 1, 2: 100}[policy.power] * one.step_size)
    np.testing.assert_allclose(tenth.width, 10)
    np.testing.assert_allclose(tenth.matrix(), 0.1 * root, atol=1e-12)
    psi = np.random.default_rng(1).normal(size=(4, D))
    np.testing.assert_allclose(tenth.phi(psi), one.phi(psi))
    plan = plan_of(sds, root, policy)
    np.testing.assert_allclose(plan.width, 1)
    np.testing.assert_allclose(plan.unit, np.linalg.svd(root / sds(root)[:, None])[1].min())


def test_scales_of_many_are_scales():
    own = np.geomspace(0.5, 2, D)
    plan = plan_of(lambda sd: sd * own, np.full(D, 3.0))
    np.testing.assert_allclose(plan.root, 3 * own)
    np.testing.assert_allclose(plan.width, 1 / own)
    np.testing.assert_allclose(plan.unit, 0.5)


def test_noise_is_measured_in_the_bulk_whatever_whitens():
    """An anchor's noise grows with the distance from it, which is the bulk's."""
    surface = Noisy(np.full(3, 1.0), np.full(3, 0.5))
    one, tenth = (
        plan_of(scale, np.eye(3), surface=surface) for scale in ("auto", lambda x: x / 10)
    )
    np.testing.assert_allclose(100 * tenth.variance, one.variance, rtol=0.5)
    assert (one.batches, type(one.gradient)) == (tenth.batches, type(tenth.gradient))


def test_widths_are_those_of_the_axes_to_which_the_noise_of_batches_turns():
    """The narrow axis is the noisiest, and so the last."""
    sds_of_fit = np.array([0.01, 10.0])
    surface = Noisy(np.zeros(2), np.array([1e8, 1.0]))
    plan = plan_of(lambda root: np.eye(len(root)), np.diag(sds_of_fit), surface=surface)
    moved = np.abs(plan.phi(np.eye(2)) - plan.centre) / sds_of_fit
    np.testing.assert_allclose(moved[::-1], np.eye(2), atol=0.01)


def test_a_burn_in_is_as_noisy_in_any_units_of_the_whitened_coordinates():
    """An anchored batch's noise has the variance 0.5 one sd from the anchor, and 8 four sds."""
    surface = Noisy(np.full(3, 10.0), np.full(3, 0.5**0.5))
    positions = np.random.default_rng(1).normal(size=(50, 3))
    job = SimpleNamespace(
        policy=LM, options=Options(), again=False, state=SimpleNamespace(settings=None),
        density=SimpleNamespace(places=[None]), rng=np.random.default_rng(0),
        engine=SimpleNamespace(scheme=BATCH_SCHEMES["shuffled"]),
    )  # fmt: skip
    for units in (0.1, 1.0, 10.0):
        plan = plan_of(partial(np.multiply, units), np.eye(3), surface=surface)
        rounds = Rounds(job, surface, Fit(plan.centre, np.eye(3)), Regime())
        near, far = (rounds._noise_of_burn_in(plan, away * positions) for away in (1, 4))
        assert near == 0 < far, units


def test_without_whitening_trials_see_each_coordinate_in_its_own_sds():
    root = np.diag([0.1, 1.0, 10.0])
    plan = plan_of(None, root)
    np.testing.assert_allclose(plan.unit, 0.1)
    np.testing.assert_allclose(plan.phi(np.zeros((1, 3)))[0], 5)
    np.testing.assert_allclose(plan.phi(np.ones(3)), [5.1, 6, 15])
    np.testing.assert_allclose(plan.matrix(), np.eye(3))


def fails(root):
    raise KeyError("slopes")


@pytest.mark.parametrize(
    ("scale", "root", "said"),
    [
        (fails, np.eye(3), r"^scale=fails raised KeyError for .* \(3, 3\): 'slopes'"),
        (lambda root: root[:2], np.eye(3),
         r"of shape \(3, 3\) or \(3,\) for .* returned one of float64 and shape \(2, 3\)"),
        (np.diag, np.ones(3), r"of shape \(3,\) for the root of shape \(3,\)"),
        (lambda root: root + 0j, np.eye(3), "an array of real numbers .* one of complex128"),
        (lambda root: None, np.eye(3), r"an array of real numbers .* one of object and shape \(\)"),
        (partial(np.multiply, np.nan), np.eye(3), "must return finite numbers"),
        (np.ones_like, np.eye(3), "^scale=ones_like must return an invertible matrix"),
        (lambda root: -sds(root), np.eye(3), "must return positive numbers"),
    ],
)  # fmt: skip
def test_errors_name_the_function_and_what_is_wrong(scale, root, said):
    with pytest.raises(TuningError, match=said):
        plan_of(scale, root)


def test_tuning_never_hands_out_its_own_root():
    def changes(root):
        root *= 0
        return np.eye(len(root))

    root = np.eye(3)
    plan_of(changes, root)
    np.testing.assert_array_equal(root, np.eye(3))


def test_a_step_carries_the_function_to_other_processes():
    with pm.Model():
        pm.Normal("x", shape=D)
        step = sg.CoRVSGLD(scale=lambda root: 0.5 * root)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    np.testing.assert_array_equal(copy.options.scale(np.ones(2)), [0.5, 0.5])


# ---------------------------------------------------------------------- draws


def assert_standard(z):
    for power, expected in ((1, 0.0), (2, 1.0)):
        found, error = mean_and_error(means_of_parts(z**power))
        assert np.all(abs(found - expected) < STANDARD_ERRORS * error), (power, found, error)
        assert np.all(error < 0.15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "scale"),
    [
        (sg.CoRVSGLD, TWO_DIRECTIONS), (sg.CoRVSGLD, ten_times_too_narrow), (sg.CoRVSGLD, sds),
        (sg.MSGNHT, TWO_DIRECTIONS),
    ],
    ids=["two directions", "too narrow", "sds", "thermostat"],
)  # fmt: skip
def test_draws_are_right_in_coordinates_of_the_users_own(method, scale):
    cov, mean = covariance(), np.arange(D) - 2.0
    with pm.Model() as model:
        pm.MvNormal("x", mean, cov)
    step = method(model=model, scale=scale, backend="jax")
    result, settings = run(step), step.chain.settings
    wanted = scale(np.linalg.cholesky(cov))
    if wanted.ndim == 2:
        # ψ's axes are tuning's, and only RR' is the user's
        root = settings.root
        np.testing.assert_allclose(root @ root.T, wanted @ wanted.T, rtol=0.01, atol=1e-6)
    else:
        np.testing.assert_allclose(settings.root[0], wanted, rtol=0.01)
    assert not settings.warnings
    assert_standard((result.posterior["x"].values - mean) / np.sqrt(np.diag(cov)))


def test_slopes_whose_axes_the_noise_of_batches_exchanges_are_right_and_raise_no_alarm():
    rng = np.random.default_rng(0)
    # The first slope is the narrower and the noisier one
    X = rng.normal(size=(600, 2)) * [5.0, 1.0]
    y = X @ [1.0, -1.0] + rng.normal(size=600)
    with pm.Model():
        x, seen = pm.Minibatch(X, y, batch_size=60)
        slopes = pm.Normal("slopes", 0, 10, shape=2)
        pm.Normal("y", x @ slopes, 1, observed=seen, total_size=600)
        step = sg.CoRVSGLD(scale=lambda root: np.eye(len(root)), backend="jax")
    draws = run(step, draws=300, tune=0, chains=1).posterior["slopes"].values
    assert not step.chain.settings.warnings
    mean, cov = slopes_of(X, y, 1.0)
    assert_standard((draws - mean) / np.sqrt(np.diag(cov)))


@pytest.mark.slow
def test_scales_by_hand_of_some_variables_leave_the_step_size_to_tuning():
    """The slope's sd is 0.35, and that of the intercept, whose scale is 1, only 0.06."""
    rng = np.random.default_rng(0)
    X = np.column_stack([0.16 * rng.normal(size=50), np.ones(50)])
    y = X @ [1.0, -1.0] + 0.4 * rng.normal(size=50)
    with pm.Model():
        a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 10)
        pm.Normal("y", a * X[:, 0] + b, 0.4, observed=y)
        step = sg.CoRVSGLD(scale={"a": 0.5}, backend="jax")
    posterior = run(step, draws=300, tune=0, chains=1).posterior
    assert not step.chain.settings.warnings
    mean, cov = slopes_of(X, y, 0.4)
    for k, name in enumerate("ab"):
        assert_standard((posterior[name].values - mean[k]) / np.sqrt(cov[k, k]))
