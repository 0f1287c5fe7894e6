"""The plan: whitening, estimator, number of batches and step size."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.policies import LM, POLICIES, THERMOSTAT
from helpers.surfaces import Gaussian, OneScale, away_from_identity, rotated
from helpers.surfaces_of_rows import Logistic, Means, Noisy, correlated_columns, logistic
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.directions import Turn
from pymc_sgmcmc.tuning.noise import TurnedNoise, most_of_each
from pymc_sgmcmc.tuning.plan import Fit, Problem, _shortened, make_plan
from pymc_sgmcmc.tuning.regimes import Regime, regime_of
from pymc_sgmcmc.tuning.start import Beginning

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def plan_for(surface, start, policy=LM, compiled=None, **wishes):
    rng, scale = np.random.default_rng(0), wishes.pop("scale", "auto")
    centre, root, _ = find_bulk(Beginning(surface, OneScale(), start), rng, print)
    return make_plan(
        surface, Fit(centre, root), regime_of(root, exchangeable=False),
        Problem(policy, Options(**wishes), scale, [len(start)]), rng, lambda step: None,
        compiled=compiled,
    )  # fmt: skip


def plan_at_zero(
    surface, policy=LM, *, regime=None, many=False, turn=None, sd=1.0, centre=0.0, **problem
):
    """Return a plan for independent normals."""
    d, rng = surface.dimension, np.random.default_rng(0)
    return make_plan(
        surface, Fit(np.full(d, centre), np.full(d, sd), turn),
        regime or Regime(diagonal=many), Problem(policy, **problem), rng,
        lambda step: None,
    )  # fmt: skip


@EVERY_POLICY
def test_plan_without_minibatches(policy):
    matrix = rotated(12, 1e4)
    plan = plan_for(Gaussian(np.ones(12), matrix), np.zeros(12), policy)
    assert away_from_identity(plan.root.T @ matrix @ plan.root) < 1.001
    assert isinstance(plan.gradient, sg.Plain)
    assert (plan.batches, plan.unit, plan.step_size) == (1, 1.0, policy.step_size)
    np.testing.assert_array_equal(plan.variance, 0)
    np.testing.assert_array_equal(plan.relative, 1)


def means_surface(rows=4000, batch_size=40):
    data = np.random.default_rng(4).normal([1.0, 2.0, 3.0], 1.0, size=(rows, 3))
    return Means(data, batch_size), data.mean(axis=0)


def test_plan_takes_control_variates_where_they_are_quieter():
    surface, mean = means_surface()
    plan = plan_for(surface, np.zeros(3))
    assert isinstance(plan.gradient, sg.ControlVariates)
    assert plan.batches == 1
    assert plan.variance.max() < 1e-12
    assert plan.step_size == LM.step_size
    away = (plan.centre - mean) * 4000**0.5
    assert away @ away < 0.1 * 3


def test_plan_takes_plain_gradients_where_control_variates_are_not_quieter():
    plan = plan_for(Noisy(np.full(3, 0.5), np.full(3, 1.5)), np.zeros(3), scale="diagonal")
    assert isinstance(plan.gradient, sg.Plain)
    plan = plan_for(Noisy(np.full(3, 2.0), np.full(3, 0.5)), np.zeros(3), scale="diagonal")
    assert isinstance(plan.gradient, sg.ControlVariates)


def test_noise_of_a_scale_counts_beside_that_of_thousands():
    """Its quantile is its own: of all coordinates together it is nothing."""
    variance = np.concatenate([[7.0], np.linspace(0, 1, 5001)])
    assert most_of_each(variance, [1, 5001]) == 7
    np.testing.assert_allclose(most_of_each(variance, []), 0.95, rtol=1e-3)


def batches_of_many(first, others):
    """Averaged with a variable of one element beside one of 199, of these standard errors."""
    noise = np.array([first, *[others] * 199])
    surface, options = Noisy(noise, np.zeros(200), rows=20_000), Options(gradient=sg.Plain())
    return plan_at_zero(surface, many=True, options=options, sizes=[1, 199]).batches


def test_a_single_variable_raises_the_number_of_batches_to_16_at_most():
    few, some, most = (batches_of_many(first, 0.1) for first in (0.1, 4.0, 100.0))
    assert few < some <= most == 16
    # All of them may have more, and then it has these too
    assert batches_of_many(100.0, 20.0) == batches_of_many(20.0, 20.0) > 16


@pytest.mark.parametrize(
    ("policy", "half"), [(LM, 1.0), (THERMOSTAT, 0.5)], ids=["LM", "thermostat"]
)
def test_noise_that_grows_as_of_rates_is_averaged_over_more_batches(policy, half):
    surface = Noisy(np.full(200, 30.0), np.full(200, 2.0), rows=20_000)
    shared, growing = (
        plan_at_zero(surface, policy, many=True, shares_noise=True, noise_grows=grows)
        for grows in (False, True)
    )
    assert isinstance(growing.gradient, sg.ControlVariates)
    # Variance 4 a sd from the anchor; a thermostat's heat falls with its step size
    assert shared.variance.max() < 2.5 and growing.variance.max() * half < 0.35
    assert growing.step_size == half * policy.step_size
    assert 1 < shared.batches < growing.batches < 40


def test_steps_are_shortened_only_where_noise_costs():
    """Of few coordinates, to the noise of most or to what the whole step allows."""
    root, variance = np.ones(101), np.array([40.0, *[0.1] * 100])
    none = TurnedNoise()
    found, *_, after = _shortened(root, None, none, variance, 10.0)
    np.testing.assert_allclose(found, [0.5, *[1] * 100])
    np.testing.assert_allclose(after, [10, *[0.1] * 100])
    np.testing.assert_array_equal(_shortened(root, None, none, variance, 50.0)[0], root)


def test_noise_that_is_measured_on_the_way_is_that_of_the_shortened_coordinates():
    d = 100
    additive = np.ones(d)
    additive[-5:] = 6.0
    policy = replace(THERMOSTAT, per_coordinate=False, noise_of_many=None)
    turn = Turn.to(np.full((d, 1), d**-0.5), np.array([2.0]), [d], np.ones(d))
    plan = plan_at_zero(
        Noisy(additive, np.zeros(d)), policy, many=True, turn=turn, shares_noise=True, sizes=[d],
        options=Options(gradient=sg.Plain(), batches=1),
    )  # fmt: skip
    assert np.all(plan.turn.lengths[-5:] < 0.7)
    measured = plan.with_noise(additive**2, plan.step_size, policy)
    # Both are of some hundred batches
    np.testing.assert_allclose(measured.variance, plan.variance, rtol=0.3)


def test_plan_takes_the_quieter_of_two_estimators_that_cost_the_same():
    """Both are within the bound with one batch, and block gradients are remembered."""
    surface = Noisy(np.full(3, 1.0), np.full(3, 0.5))
    plan = plan_at_zero(surface, THERMOSTAT, remembers_blocks=True)
    assert plan.batches == 1
    assert isinstance(plan.gradient, sg.ControlVariates)


def cost(batches, variance, policy):
    """Batches for an effective draw, and what accuracy is lost beyond the bound on noise."""
    return batches * max(1.0, variance / policy.noise) ** 2


@EVERY_POLICY
def test_plan_averages_as_many_batches_as_cost_least(policy):
    # Plain gradients have a variance of about N / B = 100 posterior precisions
    surface, _ = means_surface()
    plan = plan_for(surface, np.zeros(3), policy, gradient=sg.Plain())
    alone = plan_for(surface, np.zeros(3), policy, gradient=sg.Plain(), batches=1)
    assert np.all(abs(alone.variance / 100 - 1) < 0.5)

    def variance(k):
        # Batches that share no rows
        return alone.variance.max() * (1 - k / 100) / (1 - 1 / 100) / k

    assert plan.variance.max() == pytest.approx(variance(plan.batches), abs=1e-12)
    cheapest = min((2, 3, 4, 6, 8, 12, 16, 24, 32, 48), key=lambda k: cost(k, variance(k), policy))
    if 3 * cheapest >= 100:
        # Much of the data: all rows
        assert plan.batches == 100
        return
    least = min(cost(k, variance(k), policy) for k in range(1, 101))
    # Numbers of batches are tried in steps of a half
    assert cost(plan.batches, variance(plan.batches), policy) < 1.5 * least
    # Another one that was compiled is kept where it costs little more
    one_more = next(k for k in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96) if k > plan.batches)
    for compiled, expected in ((one_more, one_more), (1, plan.batches)):
        again = plan_for(surface, np.zeros(3), policy, gradient=sg.Plain(), compiled=compiled)
        assert again.batches == expected
    for found in (plan, alone):
        if policy.widening is not None:
            h = np.minimum(policy.step_size, policy.widening / found.variance)
            expected = h if policy.per_coordinate else h.min()
            np.testing.assert_allclose(found.step_size * found.relative, expected)


@pytest.mark.parametrize(
    ("scheme", "wishes", "batches"),
    [
        ("shuffled", {}, 100),
        ("shuffled", {"gradient": sg.Plain()}, 100),
        ("shuffled", {"gradient": sg.Plain(), "batches": 48}, 48),
        # Of rows with replacement not all are seen
        ("random", {"gradient": sg.Plain()}, 96),
    ],
)
def test_all_rows_are_taken_where_batches_are_a_third_of_them(scheme, wishes, batches):
    surface = Noisy(np.full(3, 8.0), np.full(3, 8.0), rows=4000, batch_size=40)
    plan = plan_at_zero(surface, options=Options(**wishes), scheme=BATCH_SCHEMES[scheme])
    assert surface.n_blocks == 100
    assert isinstance(plan.gradient, sg.Plain)
    assert plan.batches == batches
    assert (plan.variance.max() == 0) == (batches == 100)


def test_all_rows_are_not_taken_where_the_cost_decides_how_many_updates_a_draw_has():
    surface = Noisy(np.full(3, 10.0), np.full(3, 10.0), rows=4000, batch_size=40)
    regimes = [Regime(diagonal=True, exchangeable=x) for x in (False, True)]
    plans = [plan_at_zero(surface, regime=regime) for regime in regimes]
    assert [plan.batches for plan in plans] == [100, 48]


@pytest.mark.parametrize("method", [sg.SGHMC, sg.SGNHT])
def test_noise_bounds_steps_that_are_lengths_in_coordinates_as_they_are(method):
    """Of hσ², with h and σ² in units of the coordinates."""
    with pm.Model() as model:
        pm.Normal("x")
    policy = method(model=model).policy()
    surface = Noisy(np.full(1, 10.0), np.zeros(1))
    plan = plan_at_zero(
        surface, policy, options=Options(gradient=sg.Plain(), batches=1), scale=None, sd=1.0
    )
    half = plan_at_zero(
        surface, policy, options=Options(gradient=sg.Plain(), batches=1), scale=np.full(1, 2.0)
    )
    assert plan.step_size * plan.variance[0] == pytest.approx(policy.widening)
    assert half.step_size * half.variance[0] == pytest.approx(policy.widening)


def test_the_noise_of_stored_blocks_counts_that_the_last_is_short():
    """An anchor's gradients are kept for 1,024 and 26 rows: their errors are not those of 1,024."""
    surface = Noisy(np.full(3, 1e-3), np.full(3, 1e-3), rows=1050, batch_size=1024)
    chosen = plan_at_zero(surface, remembers_blocks=True)
    wish = Options(gradient=sg.ControlVariates(), batches=1)
    told = plan_at_zero(surface, remembers_blocks=True, options=wish)
    # Of two blocks, one with nearly all rows: twice the mean of squares, less 1
    expected = 2 * (1024**2 + 26**2) / 1050**2 - 1
    assert told.variance.max() == pytest.approx(expected, rel=0.1)
    assert isinstance(chosen.gradient, sg.Plain)


def test_plan_averages_few_batches_of_millions_of_parameters(monkeypatch):
    surface, _ = means_surface()
    assert plan_for(surface, np.zeros(3), gradient=sg.Plain()).batches > 4
    monkeypatch.setattr("pymc_sgmcmc.tuning.plan._LARGEST_UPDATE", 3 * 4)
    assert plan_for(surface, np.zeros(3), gradient=sg.Plain()).batches == 4
    assert plan_for(surface, np.zeros(3), gradient=sg.Plain(), batches=7).batches == 7


def test_plan_averages_the_batches_that_it_is_told():
    surface, _ = means_surface()
    for estimator in (sg.Plain(), sg.ControlVariates(), "auto"):
        assert plan_for(surface, np.zeros(3), gradient=estimator, batches=7).batches == 7


def test_plan_gives_noisy_coordinates_smaller_steps():
    surface = Noisy(np.zeros(3), np.array([0.1, 1.0, 3.0]))
    plan = plan_for(surface, np.zeros(3), batches=1, scale="diagonal")
    h = plan.step_size * plan.relative
    assert plan.step_size == LM.step_size
    np.testing.assert_allclose(h, np.minimum(0.2, LM.widening / plan.variance))
    assert h[2] < 0.1 < h[0] == 0.2
    policy = replace(LM, per_coordinate=False)
    plan = plan_for(surface, np.zeros(3), policy, batches=1, scale="diagonal")
    np.testing.assert_array_equal(plan.relative, 1)
    assert plan.step_size == pytest.approx(LM.widening / plan.variance.max())


@EVERY_POLICY
def test_plan_respects_each_scale(policy):
    matrix = rotated(6, 100)
    surface, start = Gaussian(np.zeros(6), matrix), np.ones(6)
    dense = plan_for(surface, start, policy, scale="dense")
    assert dense.root.shape == (6, 6)
    diagonal = plan_for(surface, start, policy, scale="diagonal")
    np.testing.assert_allclose(diagonal.root, np.diag(np.linalg.inv(matrix)) ** 0.5, rtol=1e-3)
    by_hand = plan_for(surface, start, policy, scale=np.arange(1.0, 7.0))
    np.testing.assert_array_equal(by_hand.root, np.arange(1.0, 7.0))
    whitened = matrix * np.outer(by_hand.root, by_hand.root)
    assert by_hand.unit == pytest.approx(np.linalg.eigvalsh(whitened).max() ** -0.5, rel=1e-3)
    none = plan_for(surface, start, policy, scale=None)
    assert none.root is None
    # Steps that the narrowest direction needs: a squared length, or a length
    narrowest = np.linalg.eigvalsh(matrix).max() ** -0.5
    assert none.unit == pytest.approx(narrowest, rel=1e-3)
    expected = policy.step_size * narrowest**policy.power
    assert none.step_size == pytest.approx(expected, rel=1e-2)


@EVERY_POLICY
def test_plan_where_no_matrix_was_found_is_that_of_independent_normals(no_matrix, policy):
    """So a scale that asks for no matrix makes no difference."""
    surface = Noisy(np.full(3, 2.0), np.full(3, 0.5))
    auto, diagonal = (
        plan_for(surface, np.zeros(3), policy, scale=scale) for scale in ("auto", "diagonal")
    )
    assert auto.regime == diagonal.regime == Regime(diagonal=True)
    np.testing.assert_array_equal(auto.root, diagonal.root)
    np.testing.assert_array_equal(auto.variance, diagonal.variance)


def test_plan_measures_noise_where_the_posterior_is_without_whitening_too():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 2)) * 100
    y = (rng.random(4000) < 1 / (1 + np.exp(-X @ [0.01, -0.01]))).astype(float)
    surface = Logistic(X, y, 50)
    dense, none = (plan_for(surface, np.zeros(2), scale=scale) for scale in ("dense", None))
    assert type(none.gradient) is type(dense.gradient)
    assert none.batches == dense.batches


@pytest.mark.parametrize("scale", ["auto", "dense"])
def test_plan_of_many_dimensions_is_diagonal(scale):
    precisions = np.geomspace(1, 1e4, 600)
    plan = plan_for(Gaussian(np.zeros(600), precisions), np.ones(600), scale=scale)
    assert plan.root.shape == (600,)
    # As in the test of the diagonal Gaussian
    assert np.std(np.log(plan.root * precisions**0.5)) < 0.15


def test_plan_does_not_take_overlapping_batches_for_the_full_data():
    """Two batches of 512 shuffled rows count 424 of 600 rows twice; two blocks count none."""
    rows, size = 600, 512
    points = np.random.default_rng(4).normal(size=(rows, 3))

    def variances(gradient, batches):
        plan = plan_at_zero(
            Means(points, size), sd=rows**-0.5, centre=points.mean(axis=0), remembers_blocks=True,
            options=Options(gradient=gradient, batches=batches),
        )  # fmt: skip
        return plan.variance

    # 424 rows counted once more: 424 (1 - 424/600) / 1024² against 512 (1 - 512/600) / 512²
    expected = 424 * (1 - 424 / 600) / 1024**2 * 512 / (1 - 512 / 600)
    found = variances(sg.Plain(), 2) / variances(sg.Plain(), 1)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(variances(sg.ControlVariates(), 2), 0)


def test_an_anchor_of_svrg_is_as_near_as_it_is_young():
    """The claimed noise is that of draws so far apart as the chain and its anchor."""
    surface = logistic()
    estimators = {
        "centre": sg.ControlVariates(),
        "new": sg.SVRG(refresh=1),
        "young": sg.SVRG(refresh=2),
        "old": sg.SVRG(refresh=100_000),
    }

    def noise(gradient, thin):
        plan = plan_for(surface, np.zeros(5), gradient=gradient, batches=1, thin=thin)
        return plan.variance.max()

    found = {name: noise(gradient, 1) for name, gradient in estimators.items()}
    np.testing.assert_allclose(found["new"], 0, atol=1e-12)
    # One update of two away from it: 2 h / 2 of the squared distance to the centre
    np.testing.assert_allclose(found["young"], LM.step_size * found["centre"])
    np.testing.assert_allclose(found["old"], 2 * found["centre"], rtol=1e-3)
    # It moves as a draw begins, of 20 updates by default
    assert noise(sg.SVRG(refresh=1), None) == noise(sg.SVRG(refresh=20), None)
    assert noise(sg.SVRG(refresh=21), None) == noise(sg.SVRG(refresh=40), 1)


@pytest.mark.parametrize("scale", ["diagonal", None])
def test_noise_along_sums_of_correlated_coordinates_lowers_the_step(scale):
    surface, _ = correlated_columns(d=12, factors=2)
    hessian = surface.mean_hessian(np.zeros(12), np.zeros((12, 12)), np.random.default_rng(0), 1)
    plan = plan_for(surface, np.zeros(12), scale=scale, gradient=sg.Plain(), batches=1)
    root = np.ones(12) if plan.root is None else plan.root
    noise = hessian * np.outer(root, root) * surface.rows / surface.batch_size
    assert plan.step_size * np.linalg.eigvalsh(noise)[-1] < 1.3 * LM.widening


def test_steps_of_heavy_tails_on_sds_are_those_of_the_narrowest_direction():
    """Whitened by its sds a law of correlation 0.99 has a direction 14 times as narrow."""
    covariance = np.array([[1, 0.99], [0.99, 1]])
    surface = Gaussian(np.zeros(2), np.linalg.inv(covariance))
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    policy = sg.FLA(model=model).policy()
    assert not policy.isotropic
    plan = plan_for(surface, np.zeros(2), policy, scale="diagonal")
    assert plan.root.ndim == 1
    curvature = np.linalg.eigvalsh(surface.matrix * np.outer(plan.root, plan.root))[-1]
    assert curvature > 50
    assert plan.step_size * curvature == pytest.approx(policy.step_size, rel=0.1)


def test_steps_that_are_lengths_are_short_beside_the_friction():
    plan = plan_for(Gaussian(np.zeros(2), np.eye(2) / 1600), np.zeros(2), THERMOSTAT, scale=None)
    assert plan.step_size == THERMOSTAT.step_size


def test_plan_of_batches_of_all_rows_is_that_of_no_batches():
    data = np.random.default_rng(1).normal(size=(200, 3))
    plan = plan_at_zero(Means(data, 200), THERMOSTAT, many=True, shares_noise=True, sizes=[3])
    np.testing.assert_array_equal(plan.variance, 0)
    assert (plan.batches, plan.step_size) == (1, THERMOSTAT.step_size)
