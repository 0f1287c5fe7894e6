"""What the papers prove, where a number shows it and no sampler's own test does."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.modes import REWRITTEN
from pymc_sgmcmc import transforms as tr

# Of CoRV's table of maps, and where on φ they come near a bound
INTERVALS = [tr.Sigmoid(), tr.Arctan(), tr.Softsign()]
HALF_LINES = [tr.Softplus(), tr.ICLL()]
ALL = [(m, side) for m in INTERVALS for side in (-1, 1)] + [(m, -1) for m in HALF_LINES]
IDS = [f"{type(m).__name__} {side:+}" for m, side in ALL]
FAR = np.array([10.0, 30.0, 100.0, 300.0])


def name(transform):
    return type(transform).__name__


def values(outputs, variable, at):
    return pytensor.function([variable], outputs, mode=REWRITTEN)(at)


class TestCoRV:
    """Yokoi et al. (2019), by the numbers of the preprint."""

    @pytest.mark.parametrize(("transform", "side"), ALL, ids=IDS)
    def test_noise_goes_to_zero_at_a_bound(self, transform, side):
        """Theorem 2 and lemma 4: it is f′ times that of θ's gradient."""
        phi = pt.vector("phi")
        slope = values(pt.exp(transform.log_jac_det(phi)), phi, side * FAR)
        assert (np.diff(slope) < 0).all()
        assert slope[-1] < 1e-5

    @pytest.mark.parametrize("transform", HALF_LINES, ids=name)
    def test_slopes_of_half_lines_go_to_one_elsewhere(self, transform):
        phi = pt.vector("phi")
        np.testing.assert_allclose(
            values(pt.exp(transform.log_jac_det(phi)), phi, FAR), 1, atol=1e-4
        )

    @pytest.mark.parametrize(("transform", "side"), ALL, ids=IDS)
    def test_potential_goes_to_infinity(self, transform, side):
        """Lemma 1, with a density that is not 0 at the bounds."""
        phi = pt.vector("phi")
        log_density = -(transform.backward(phi) ** 2) / 2 + transform.log_jac_det(phi)
        potential = values(-log_density, phi, side * FAR)
        assert (np.diff(potential) > 1).all()

    @pytest.mark.parametrize("transform", INTERVALS + HALF_LINES, ids=name)
    def test_noise_of_a_bounded_slope_has_mean_zero_and_moments(self, transform):
        """Lemma 5: moments of f′δ are at most those of δ times powers of the largest f′."""
        phi = pt.vector("phi")
        at = np.linspace(-50, 50, 2001)
        slope = values(pt.exp(transform.log_jac_det(phi)), phi, at)
        assert slope.max() <= transform.lipschitz_constant * (1 + 1e-12)
        noise = np.random.default_rng(0).standard_t(5, size=4000)
        noise -= noise.mean()
        for f in slope[::100]:
            assert abs(np.mean(f * noise)) < 1e-12
            most = transform.lipschitz_constant**4 * np.mean(noise**4)
            assert np.mean((f * noise) ** 4) <= most * (1 + 1e-9)


class TestSMLD:
    """Hsieh et al. (2018), with the Dirichlet posterior of their figure 1(a)."""

    mirror = tr.EntropicMirror()
    posterior = 0.1 + np.array([10_000, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0])

    def points(self):
        return np.random.default_rng(0).dirichlet(self.posterior, size=20)

    def dual(self, x):
        return np.log(x[..., :-1]) - np.log(x[..., -1:])

    def potential(self, x):
        """V, of all entries."""
        return -pt.sum((self.posterior - 1) * pt.log(x), axis=-1)

    def test_two_forms_of_an_update(self):
        """Equation 3.3: ∇W = (∇²h)⁻¹(∇V + ∇log det ∇²h)."""
        y, x = pt.vector("y", shape=(10,)), pt.vector("x", shape=(10,))
        whole = pt.concatenate([x, [1 - pt.sum(x)]])
        of_w = self.potential(self.mirror.backward(y)) - self.mirror.log_jac_det(y)
        # det ∇²h is one over the product of all entries
        of_v = self.potential(whole) - pt.sum(pt.log(whole))
        gradients = pytensor.function([y, x], [pt.grad(of_w, y), pt.grad(of_v, x)], mode=REWRITTEN)
        # Where 1 less the sum of ten entries has all its digits
        for point in np.random.default_rng(0).dirichlet(np.full(11, 2.0), size=20):
            first, dual = gradients(self.dual(point), point[:-1])
            # The inverse of diag(1/x) + 1/x_{d+1}
            second = point[:-1] * dual - point[:-1] * np.dot(point[:-1], dual)
            np.testing.assert_allclose(second, first, rtol=1e-9, atol=1e-9)

    def test_dual_potential(self):
        """Lemma 1 and example 1: its formula, and that it is strictly convex."""
        y = pt.vector("y", shape=(10,))
        x = self.mirror.backward(y)
        w = self.potential(x) - self.mirror.log_jac_det(y)
        function = pytensor.function([y], [w, pt.hessian(w, y)], mode=REWRITTEN)
        h_star = np.log1p(np.exp(self.dual(self.points())).sum(-1))
        formula = -self.dual(self.points()) @ self.posterior[:-1] + self.posterior.sum() * h_star
        found, hessians = zip(*map(function, self.dual(self.points())), strict=True)
        np.testing.assert_allclose(found - found[0], formula - formula[0], rtol=1e-9, atol=1e-6)
        for point, hessian in zip(self.points(), hessians, strict=True):
            covariance = np.diag(point[:-1]) - np.outer(point[:-1], point[:-1])
            exact = self.posterior.sum() * covariance
            np.testing.assert_allclose(hessian, exact, rtol=1e-6, atol=1e-8)

    def test_distances_of_dual_and_primal(self):
        """Theorem 2: x is no farther than y, since h is 1-strongly convex."""
        y = np.random.default_rng(1).normal(scale=3, size=(2, 50, 10))
        value = pt.tensor3("y")
        x = values(self.mirror.backward(value), value, y)[..., :-1]
        far, near = (np.linalg.norm(z[0] - z[1], axis=-1) for z in (y, x))
        assert (near <= far).all()

    def test_exact_draws_mapped_there_and_back(self):
        """Theorem 1: total variation, here the distance of distribution functions, is kept."""
        x = np.random.default_rng(2).dirichlet(self.posterior, size=4000)
        value = pt.matrix("y")
        back = values(self.mirror.backward(value), value, self.dual(x))
        for k, a in enumerate(self.posterior[:3]):
            law = stats.beta(a, self.posterior.sum() - a)
            assert stats.kstest(back[:, k], law.cdf).pvalue > 1e-3

    def test_the_papers_map_is_that_without_a_scale(self):
        with pm.Model():
            pm.Dirichlet("x", self.posterior)
            steps = [sg.SMLD(step_size=0.01), sg.SMLD(step_size=0.01, scale=None)]
        # Whether simplexes are masses, and with which bend
        assert [step.options.bend(11) for step in steps] == [1, None]
