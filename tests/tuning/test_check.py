"""Burn-in and the trials that settle step size and thinning."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.policies import LM, rules_of
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.convergence import effective_draws
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.check import burn_in, settle
from pymc_sgmcmc.tuning.messages import text_of
from pymc_sgmcmc.tuning.surface import NoGaussianError, TuningError
from pymc_sgmcmc.tuning.trial_chain import Trial, _spread_over


def on_lines(d):
    return np.zeros(d, dtype=bool)


class FakeChain:
    """Autoregressive draws of N(0, variance(h)); wild above a step size.

    Parameters
    ----------
    time : float
        Relaxation time at step size 1, in updates.
    """

    def __init__(self, *, variance=lambda h: 1.0, time=2.0, wild_above=np.inf, d=3, seed=0):
        self.variance, self.time, self.wild_above = variance, time, wild_above
        self.d, self.rng = d, np.random.default_rng(seed)
        self.asked, self.restarts, self.raised = [], 0, 0

    def restart(self):
        self.restarts += 1
        self.x = self.rng.standard_normal(self.d)

    def run(self, step_size, thin, draws):
        self.asked.append((step_size, thin, draws))
        if step_size > self.wild_above:
            nowhere = np.full((1, self.d), np.nan)
            return Trial(nowhere, np.zeros((1, self.d)), 1, on_lines(self.d))
        keep = np.exp(-thin * step_size / self.time)
        variance = self.variance(step_size)
        psi = []
        for _ in range(draws):
            noise = np.sqrt(variance * (1 - keep**2)) * self.rng.standard_normal(self.d)
            self.x = keep * self.x + noise
            psi.append(self.x)
        psi = np.array(psi)
        # E ψ ĝ is the variance
        return Trial(psi, psi.copy(), 0, on_lines(self.d))

    def raise_bound(self):
        self.raised += 1


def settled(chain, *, thin=20, fixed_step=False, policy=LM, curvatures=None, **rules):
    h, _ = burn_in(chain, 0.2, thin, fixed_step=fixed_step, updates=1000)
    return settle(chain, h, rules_of(policy, thin, fixed_step=fixed_step, **rules), curvatures)


def texts(found):
    return [text_of(warning) for warning in found.warnings]


def test_a_chain_that_is_right_passes_at_once():
    chain = FakeChain()
    found = settled(chain)
    assert (found.step_size, found.thin, found.warnings) == (0.2, 20, [])
    assert chain.asked == [(0.2, 20, 50), (0.2, 20, 500)]


def test_a_chain_that_is_right_passes_whatever_its_seed():
    # Ten coordinates of 500 draws: one trial in a hundred is off by chance, and then passes at h/2
    found = [settled(FakeChain(d=10, seed=seed)) for seed in range(60)]
    assert sum(f.step_size < 0.2 for f in found) <= 4
    assert all(f.warnings == [] for f in found)


@pytest.mark.parametrize("thin", [1, 20, 100, 1000, 5000])
def test_the_mean_of_a_burn_in_is_not_that_of_a_single_draw(thin):
    chain = FakeChain(d=1000)
    _, seen = burn_in(chain, 0.2, thin, fixed_step=False, updates=1000)
    # The largest of a thousand: 2.5 sds off a chain is taken to begin beside its centre
    assert np.abs(seen.mean(axis=0)).max() < 2.5
    [(_, _, draws)] = chain.asked
    assert draws * thin <= 10 * max(thin, 100)


def test_burn_in_halves_steps_that_are_wild():
    chain = FakeChain(wild_above=0.06)
    found = settled(chain)
    assert found.step_size == 0.05
    assert found.warnings == []
    assert [h for h, *_ in chain.asked[:3]] == [0.2, 0.1, 0.05]


def test_the_error_of_a_burn_in_names_the_last_step_size_that_was_tried():
    chain = FakeChain(wild_above=0.0)
    with pytest.raises(TuningError, match=r"every step size down to 4\.88e-05\."):
        burn_in(chain, 0.2, 20, fixed_step=False, updates=1000)
    assert chain.asked[-1][0] == 0.2 / 2**12
    with pytest.raises(TuningError, match=r"diverged at the step size 100\. Pass a smaller"):
        burn_in(chain, 100.0, 20, fixed_step=True, updates=1000)


def test_burn_in_that_is_wild_at_every_step_size_is_an_error():
    with pytest.raises(
        TuningError, match=r"burn-in diverged at every step size.*smaller step_size"
    ):
        settled(FakeChain(wild_above=0.0))
    with pytest.raises(TuningError, match="diverged"):
        settled(FakeChain(wild_above=0.1), fixed_step=True)


class WildLater(FakeChain):
    """Wild in trials, not in the shorter burn-in."""

    def run(self, step_size, thin, draws):
        trial = super().run(step_size, thin, draws)
        if draws == 500 and step_size > 0.06:
            trial.psi[100] = 2e3
        return trial


def test_trials_halve_steps_that_are_wild_and_thin_as_much_more():
    chain = WildLater()
    found = settled(chain)
    assert (found.step_size, found.thin, found.warnings) == (0.05, 80, [])
    assert chain.restarts == 3


def test_trials_halve_steps_that_are_too_hot():
    found = settled(FakeChain(variance=lambda h: 1 + 3 * h))
    # 1.15 at 0.05, 1.075 at 0.025, whose excess is within the slack and the error
    assert found.step_size <= 0.05
    assert found.thin == 20 * 0.2 / found.step_size
    assert found.warnings == []


def test_trials_lower_steps_where_the_curvature_is_large():
    chain, seen = FakeChain(time=5.0), []

    def curvatures(psi):
        seen.append(psi.shape)
        # Smaller steps go further up
        return np.where(np.arange(len(psi)) < 40, 1.0, 10.0 if len(seen) == 1 else 12.0)

    found = settled(chain, curvatures=curvatures)
    # A fifth of the places has λ = 10: three quarters of 1/λ, at which hλ = 0.9 is not too much
    assert found.step_size == pytest.approx(0.075)
    assert seen == [(50, 3)] * 2
    # 74 of 500 draws are then effective, of 250 that are asked for
    assert found.thin == 80
    assert chain.restarts == 1
    assert found.warnings == []

    assert settled(FakeChain(), curvatures=curvatures, fixed_step=True).step_size == 0.2
    least = settled(FakeChain(), curvatures=lambda psi: np.full(len(psi), 1e9))
    assert least.step_size == 0.2 / 16


def test_methods_without_second_moments_are_not_asked_for_temperatures():
    policy = Policy(step_size=0.2, second_moments=False)
    found = settled(FakeChain(variance=lambda h: 9.0), policy=policy)
    assert found.step_size == 0.2


@pytest.mark.parametrize(("time", "thins"), [(20.0, {80, 160}), (100.0, {320, 640, 1280})])
def test_a_chain_that_mixes_slowly_is_thinned_more(time, thins):
    # 500 draws a relaxation time τ apart have 500 (1 - e^-τ) / (1 + e^-τ) effective ones
    chain = FakeChain(time=time)
    found = settled(chain)
    assert found.thin in thins
    assert found.step_size == 0.2
    assert found.warnings == []
    ess = effective_draws(chain.run(0.2, found.thin, 4000).psi.T[:, None]).min() / 8
    assert ess > 125 / 1.5


def test_of_fewer_draws_as_large_a_share_has_to_be_effective():
    chain = FakeChain(time=20.0)
    found = settled(chain, draws=100)
    assert {draws for _, _, draws in chain.asked[1:]} == {100}
    assert found.thin in {80, 160}
    [text] = texts(
        settled(FakeChain(time=2e4), draws=100, policy=Policy(0.2, second_moments=False))
    )
    assert "effective draws in 100" in text


def test_thinning_ends_with_a_warning():
    found = settled(FakeChain(time=2e4), policy=Policy(0.2, second_moments=False))
    assert found.thin == 2560
    [text] = [w for w in texts(found) if "mixes slowly" in w]
    assert "Raise thin, or write the model non-centred" in text


def test_trials_end_with_a_warning():
    chain = FakeChain(variance=lambda h: 2.0)
    found = settled(chain)
    [text] = texts(found)
    assert "was 2." in text or "was 1.9" in text
    assert found.step_size == pytest.approx(0.2 / 16)
    chain = WildLater()
    chain.run = lambda h, thin, draws: Trial(
        np.full((draws, 3), 2e3 if draws == 500 else 0.1), np.zeros((draws, 3)), 0, on_lines(3)
    )
    [text] = texts(settled(chain))
    assert "updates diverged" in text


def test_step_and_thin_set_by_hand_stay():
    found = settled(FakeChain(variance=lambda h: 2.0), fixed_step=True)
    assert found.step_size == 0.2
    assert "temperature" in texts(found)[0]
    assert "Pass a smaller step_size if you set it" in texts(found)[0]
    [text] = texts(settled(WildLater(), fixed_step=True))
    assert "pass a smaller step_size if you set it" in text
    found = settled(FakeChain(time=100.0), fixed_thin=True)
    assert found.thin == 20
    found = settled(FakeChain(variance=lambda h: 1 + 3 * h), thin=7, fixed_thin=True)
    assert found.thin == 7
    assert found.step_size < 0.2


def test_a_chain_far_from_the_whitening_is_told():
    found = settled(FakeChain(variance=lambda h: 16.0), policy=Policy(0.2, second_moments=False))
    assert "far from the Gaussian" in texts(found)[0]


class Leaving(FakeChain):
    """Ends where many gradients are scaled down, until the bound was raised often enough."""

    def __init__(self, clipped=0.5, escaped=0.5, enough=99):
        super().__init__()
        self._clipped, self._escaped, self._enough = clipped, escaped, enough

    def run(self, step_size, thin, draws):
        clipped = self._clipped if self.raised < self._enough else 0.0
        return replace(super().run(step_size, thin, draws), clipped=clipped, escaped=self._escaped)


def test_a_chain_that_leaves_the_gaussian_of_exchangeable_units_has_none():
    with pytest.raises(NoGaussianError):
        settled(Leaving(), exchangeable=True)
    # As of factorisations, a scale of which the noise of batches moves far
    assert settled(Leaving(clipped=0.01), exchangeable=True).step_size == 0.2
    with pytest.raises(NoGaussianError):
        settled(FakeChain(variance=lambda h: 25.0, time=0.1), exchangeable=True)
    # Elsewhere it may be a start far from the data: the chain's own count says so at its end
    assert settled(Leaving()).step_size == 0.2


class OfMany(FakeChain):
    """One whose coordinates are judged by quantiles."""

    def run(self, step_size, thin, draws):
        return replace(super().run(step_size, thin, draws), variables=np.array(["a", "a", "b"]))


def test_many_coordinates_are_told_to_be_slow_where_a_tenth_of_the_draws_is_not_effective():
    policy = Policy(0.2, second_moments=False)
    # At the largest thin about 110 and about 10 of 500 draws are effective
    enough, slow = (
        settled(OfMany(time=time), policy=policy, thin=2560) for time in (1150.0, 13_000.0)
    )
    assert enough.warnings == []
    [text] = [text for text in texts(slow) if "mix slowly" in text]
    assert "a (100% of its elements" in text
    assert "b (100% of its elements" in text


def test_heat_tells_a_net_from_a_factorisation():
    def hot():
        return OfMany(variance=lambda h: 1 + 3 * h)

    with pytest.raises(NoGaussianError):
        settled(hot(), exchangeable=True, all_seen=True)
    assert settled(OfMany(), exchangeable=True, all_seen=True).step_size == 0.2
    # Of a part of a chain, and where no units can be exchanged, the step size is halved
    assert settled(hot(), exchangeable=True).step_size < 0.2
    assert settled(hot(), all_seen=True).step_size < 0.2


class Gone(OfMany):
    """One that is 60 sds from the centre and hardly moves."""

    def run(self, step_size, thin, draws):
        trial = super().run(step_size, thin, draws)
        return replace(trial, psi=trial.psi + 60)


def test_a_net_that_left_the_gaussian_and_does_not_mix_has_none():
    policy = Policy(0.2, second_moments=False)

    def found(time=2e4, **rules):
        return settled(Gone(time=time), policy=policy, **rules)

    with pytest.raises(NoGaussianError):
        found(exchangeable=True, all_seen=True)
    # Of a part of a chain, and where no units can be exchanged, it is told
    for rules in ({"exchangeable": True}, {"all_seen": True}):
        assert "far from the Gaussian" in texts(found(**rules))[0]
    # One that mixes may be wider than each coordinate with all others held
    assert found(2.0, exchangeable=True, all_seen=True).warnings == []


def test_a_bound_that_noise_exceeds_is_raised():
    for clipped, trials in ((0.1, 1), (0.5, 2)):
        chain = Leaving(clipped, escaped=0.1, enough=1)
        assert settled(chain, exchangeable=True).step_size == 0.2
        # The burn-in asks for the first run
        assert (chain.raised, len(chain.asked)) == (1, 1 + trials)
    with pytest.raises(NoGaussianError):
        settled(Leaving(escaped=0.1), exchangeable=True)


def test_trials_that_may_cost_no_more_end_after_a_raised_bound():
    chain = Leaving(escaped=0.1, enough=1)
    found = settled(chain, exchangeable=True, most_updates=500 * 20)
    # The burn-in's run, and one trial
    assert (chain.raised, len(chain.asked), found.step_size) == (1, 2, 0.2)


def test_settling_is_deterministic():
    one, two = (settled(FakeChain(time=20.0, seed=5)) for _ in range(2))
    assert one == two


def test_temperatures_of_independent_draws():
    rng = np.random.default_rng(6)
    psi = rng.normal(size=(500, 2000))
    mean, error = Trial(psi, 1.3 * psi, 0, on_lines(2000)).temperatures()
    assert abs(z_score(mean, 1.3)) < STANDARD_ERRORS
    # The error is that of a mean of 500 squares
    assert np.sqrt(np.mean(error**2)) == pytest.approx(1.3 * np.sqrt(2 / 500), rel=0.05)


@pytest.mark.parametrize("sizes", [[2000, 0], [0, 2000], [0, 2000, 0]])
def test_of_a_variable_without_elements_none_is_watched(sizes):
    watched = _spread_over(sizes)
    assert 0 <= watched.min() < watched.max() < 2000
    assert len(np.unique(watched)) == len(watched)


def test_no_trial_is_run_at_the_largest_thinning():
    chain = FakeChain(time=100.0)
    found = settled(chain, most_thin=160)
    assert [thin for _, thin, _ in chain.asked[1:]] == [20]
    assert found.thin == 160
    assert found.needed > 160
    assert "mixes slowly" in texts(found)[0]


def test_thinning_that_is_extrapolated_beyond_the_bound_does_not_pass():
    # 500 draws of 20 updates are about 50 effective ones: five times as many are asked for
    found = settled(FakeChain(time=20.0), most_thin=60)
    assert (found.thin, len(found.warnings)) == (60, 1)
    assert 60 < found.needed <= 320


def test_trials_end_where_another_one_would_cost_too_much():
    chain = FakeChain(variance=lambda h: 4.0)
    found = settled(chain, most_updates=35_000)
    # 10,000 updates, then 20,000 with half of the step; another 40,000 would be too many
    assert [thin for _, thin, _ in chain.asked[1:]] == [20, 40]
    assert found.needed == 80
    assert "was 4" in texts(found)[0]


def test_trials_that_end_before_thinning_was_judged_call_no_chain_slow():
    # The second trial of a smaller step would cost too much
    chain = FakeChain(time=5.0)
    found = settled(chain, curvatures=lambda psi: np.full(len(psi), 10.0), most_updates=10_000)
    assert found.step_size == pytest.approx(0.075)
    assert (found.thin, found.needed, found.warnings) == (20, 20, [])


def test_a_burn_in_may_be_shorter():
    chain = FakeChain()
    burn_in(chain, 0.2, 20, fixed_step=False, updates=300)
    assert chain.asked == [(0.2, 20, 15)]


def test_draws_of_few_updates_need_not_be_as_effective():
    # Of 500 draws of 5 updates at 0.2 and a relaxation time of 2 updates 120 are effective
    assert settled(FakeChain(), thin=5, most_thin=5).warnings == []
    assert settled(FakeChain(time=40.0), thin=5, most_thin=5).warnings


def test_a_slow_chain_of_many_coordinates_is_not_called_hot():
    """Draws are exact: of 200 temperatures some are three standard errors from 1."""
    for seed in range(6):
        found = settled(FakeChain(time=14.0, d=200, seed=seed), most_thin=20)
        assert [code for code, _ in found.warnings] == ["slow"]


def test_many_coordinates_may_be_wider_than_their_conditional_sds():
    """Sds of thousands are those with all others held: a chain that mixes is right nevertheless."""

    class Wide(OfMany):
        def run(self, step_size, thin, draws):
            trial = super().run(step_size, thin, draws)
            return replace(trial, psi=4 * trial.psi, gradient=trial.gradient / 4)

    assert settled(Wide()).warnings == []
    slow = settled(Wide(time=13_000.0), thin=2560)
    assert "far, of many" in [code for code, _ in slow.warnings]
