"""Potentials written in NumPy, as tuning sees a model without minibatches."""

import numpy as np

from helpers.grids import moments, weights
from pymc_sgmcmc.kernel.pair_sums import summed_pairs


class Exact:
    """A potential without minibatches; subclasses have ``potential`` of positions (P, d)."""

    n_blocks = 1
    shapes = ()
    batch_size = 0
    sizes = ()
    precision = float(np.finfo(float).eps)

    def __init__(self, dimension):
        self.dimension = dimension
        self.unbounded = np.ones(dimension, dtype=bool)
        self.circular = np.zeros(dimension, dtype=bool)
        self.widest = np.full(dimension, np.inf)
        self.kinked = False
        self.numbers = dimension

    def full(self, points):
        with np.errstate(all="ignore"):
            return self.potential(points)

    def block(self, points, which):
        return self.full(points)[1]

    def batch(self, points, rows):
        return self.full(points)

    def batch_gradient(self, points, rows):
        return self.batch(points, rows)[1]

    def pair_sums(self, point, width, signs, rows):
        return summed_pairs(self.batch_gradient, point, width, signs, rows)

    def draw_rows(self, rng, count):
        return np.zeros((count, 0), dtype=int)


class OneScale:
    """What fits the scales of coordinates that have none."""

    scales = ()

    def is_bent(self, point):
        return False

    def rescale(self, points):
        return points

    def set_scales(self, scales):
        pass


class Gaussian(Exact):
    """A normal density, of a precision matrix or of independent coordinates' precisions."""

    def __init__(self, mean, precision):
        super().__init__(len(mean))
        self.mean, self.matrix = mean, precision

    def potential(self, points):
        away = points - self.mean
        gradient = away @ self.matrix if self.matrix.ndim == 2 else away * self.matrix
        return np.sum(away * gradient, axis=1) / 2, gradient


class LogGamma(Exact):
    """φ = log θ, θ ~ Gamma(a, 1): skewed; U = e^φ − aφ in each coordinate."""

    def __init__(self, shapes):
        super().__init__(len(shapes))
        self.shapes = shapes

    def potential(self, points):
        return np.sum(np.exp(points) - self.shapes * points, axis=1), np.exp(points) - self.shapes


class DoubleWell(Exact):
    """(x² − 1)² / 4 along the first coordinate: a saddle at 0, and minima of curvature 2."""

    def potential(self, points):
        x, y = points[:, 0], points[:, 1:]
        u = (x**2 - 1) ** 2 / 4 + 50 * np.sum(y**2, axis=1)
        return u, np.column_stack([x * (x**2 - 1), 100 * y])


class Walled(Exact):
    """Finite for positive positions only; Gamma(3, 1) there."""

    def potential(self, points):
        return np.sum(points - 2 * np.log(points), axis=1), 1 - 2 / points


class Groups(Exact):
    """A centred hierarchy: a_j ~ N(μ, τ²), y_j ~ N(a_j, s²); the position is (μ, log τ, a).

    Its density has no upper bound: it rises as τ falls to 0 and all a_j to μ.
    """

    def __init__(self, y, s):
        super().__init__(2 + len(y))
        self.y, self.s = y, s
        self.unbounded[1] = False

    def potential(self, points):
        mu, lam, a = points[:, :1], points[:, 1:2], points[:, 2:]
        away, miss = (a - mu) / np.exp(2 * lam), (a - self.y) / self.s**2
        spread = np.sum(away * (a - mu), axis=1)
        u = (len(self.y) - 1) * lam[:, 0] + spread / 2 + np.sum(miss * (a - self.y), axis=1) / 2
        u += np.exp(2 * lam[:, 0]) / 2e4 + mu[:, 0] ** 2 / 2e6
        of_lam = len(self.y) - 1 - spread + np.exp(2 * lam[:, 0]) / 1e4
        of_mu = mu[:, 0] / 1e6 - away.sum(axis=1)
        return u, np.column_stack([of_mu, of_lam, away + miss])

    def log_scale(self):
        """Exact mean and sd of log τ."""
        lam = np.linspace(-10, 8, 4000)[:, None]
        variance = np.exp(2 * lam) + self.s**2
        weight = len(self.y) / variance + 1e-6
        centre = np.sum(self.y / variance, axis=1, keepdims=True) / weight
        log_p = lam - np.exp(2 * lam) / 2e4 - np.log(variance) * len(self.y) / 2
        log_p = log_p - np.sum((self.y - centre) ** 2 / variance, axis=1, keepdims=True) / 2
        log_p = log_p - centre**2 / 2e6 - np.log(weight) / 2
        return moments(weights(log_p[:, 0]), lam[:, 0])


class ItemResponse(Exact):
    """Answers y_ji of persons of ability s t_j to items of slope a_i and difficulty b_i.

    t_j and b_i are standard normal, log a_i ~ N(0, r²), s and r half-Cauchy of scale 2; the
    position is (log s, log r, t, log a, b).
    """

    def __init__(self, y):
        persons, items = y.shape
        super().__init__(2 + persons + 2 * items)
        self.y, self.cuts = y, np.cumsum([1, 1, persons, items])
        self.unbounded[[0, 1, *range(2 + persons, 2 + persons + items)]] = False

    def potential(self, points):
        s, r, t, log_a, b = np.split(points, self.cuts, axis=1)
        s, variance, a = np.exp(s), np.exp(2 * r), np.exp(log_a)
        logit = a[:, None] * ((s * t)[:, :, None] - b[:, None])
        miss = 1 / (1 + np.exp(-logit)) - self.y
        pull = miss * a[:, None]
        u = np.sum(np.logaddexp(0, logit) - self.y * logit, axis=(1, 2))
        u += np.sum(t**2, axis=1) / 2 + np.sum(b**2, axis=1) / 2
        u += np.sum(log_a**2, axis=1) / (2 * variance[:, 0]) + (self.y.shape[1] - 1) * r[:, 0]
        u += (np.log1p(s**2 / 4) - np.log(s) + np.log1p(variance / 4))[:, 0]
        of_s = np.sum(pull.sum(axis=2) * s * t, axis=1) + (s**2 / (2 + s**2 / 2) - 1)[:, 0]
        of_r = self.y.shape[1] - 1 - np.sum(log_a**2 / variance, axis=1)
        of_r += (variance / (2 + variance / 2))[:, 0]
        of_a = np.sum(miss * logit, axis=1) + log_a / variance
        of_t, of_b = s * pull.sum(axis=2) + t, b - pull.sum(axis=1)
        return u, np.column_stack([of_s, of_r, of_t, of_a, of_b])


def rotated(d, condition, seed=0):
    """Return a precision matrix whose scales differ by ``condition``, times scales of units."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    core = (q * np.geomspace(1, condition, d)) @ q.T
    units = 10.0 ** rng.uniform(-3, 3, size=d)
    return core * np.outer(units, units)


def groups(tau, seed):
    rng = np.random.default_rng(seed)
    return Groups(240 + tau * rng.normal(size=30) + 2.7 * rng.normal(size=30), 2.7)


def away_from_identity(matrix):
    """Eigenvalues of a matrix that should be the identity, as the largest factor off."""
    w = np.linalg.eigvalsh(matrix)
    return float(max(w.max(), 1 / w.min()))
