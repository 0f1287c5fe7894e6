"""Potentials written in NumPy that are sums over rows, as tuning sees a minibatched model."""

import numpy as np

from helpers.surfaces import Exact


class Rows(Exact):
    """A potential that is a sum over rows, in blocks of B and in contiguous batches."""

    def __init__(self, dimension, rows, batch_size):
        super().__init__(dimension)
        self.rows, self.batch_size = rows, batch_size
        self.n_blocks = -(-rows // batch_size)
        self.sizes = [(rows, batch_size)]

    def draw_rows(self, rng, count):
        return rng.integers(0, self.rows, size=(count, 1))

    def full(self, points):
        u, g = self.of_rows(points, np.tile(np.arange(self.rows), (len(points), 1)), None)
        v, h = self.prior(points)
        return u + v, g + h

    def batch(self, points, rows):
        index = (rows + np.arange(self.batch_size)) % self.rows
        u, g = self.of_rows(points, index, None)
        v, h = self.prior(points)
        factor = self.rows / self.batch_size
        return factor * u + v, factor * g + h

    def batch_gradient(self, points, rows):
        return self.batch(points, rows)[1]

    def block(self, points, which):
        which = np.broadcast_to(which, len(points))
        index = which[:, None] * self.batch_size + np.arange(self.batch_size)
        _, g = self.of_rows(points, index % self.rows, index < self.rows)
        _, h = self.prior(points)
        return g + (which == 0)[:, None] * h


class Logistic(Rows):
    """Logistic regression with a normal prior."""

    def __init__(self, X, y, batch_size, prior_precision=0.01):
        super().__init__(X.shape[1], len(X), batch_size)
        self.X, self.y, self.prior_precision = X, y, prior_precision

    def prior(self, points):
        return self.prior_precision * np.sum(points**2, axis=1) / 2, self.prior_precision * points

    def of_rows(self, points, index, weights):
        X, y = self.X[index], self.y[index]
        weights = np.ones(index.shape) if weights is None else weights
        eta = np.einsum("pbd,pd->pb", X, points)
        u = np.sum(weights * (np.logaddexp(0, eta) - y * eta), axis=1)
        return u, np.einsum("pb,pbd->pd", weights * (1 / (1 + np.exp(-eta)) - y), X)

    def mean_hessian(self, centre, root, rng, points=4000):
        eta = (centre + rng.standard_normal((points, self.dimension)) @ root.T) @ self.X.T
        p = 1 / (1 + np.exp(-eta))
        weights = np.mean(p * (1 - p), axis=0)
        return (self.X.T * weights) @ self.X + self.prior_precision * np.eye(self.dimension)


class Means(Rows):
    """Means of normal rows of unit variance, one in each coordinate: noise independent of φ."""

    def __init__(self, data, batch_size):
        super().__init__(data.shape[1], len(data), batch_size)
        self.data = data

    def prior(self, points):
        return np.zeros(len(points)), np.zeros(points.shape)

    def of_rows(self, points, index, weights):
        weights = np.ones(index.shape) if weights is None else weights
        away = (points[:, None] - self.data[index]) * weights[..., None]
        return np.sum(away**2, axis=(1, 2)) / 2, away.sum(axis=1)


class Groups(Rows):
    """y ~ N(θ_g, 1), θ ~ N(0, 1): a batch of 50 rows touches at most 50 of a thousand groups."""

    def __init__(self, groups, each, seed, batch_size=50):
        super().__init__(groups, groups * each, batch_size)
        rng = np.random.default_rng(seed)
        self.group = rng.permutation(np.repeat(np.arange(groups), each))
        self.y = rng.normal(size=groups)[self.group] + rng.normal(size=groups * each)
        self.mean = np.bincount(self.group, self.y) / (1 + each)

    def of_rows(self, points, index, counted):
        u, g = np.zeros(len(points)), np.zeros_like(points)
        for k, (x, all_rows) in enumerate(zip(points, index, strict=True)):
            rows = all_rows if counted is None else all_rows[counted[k]]
            away = x[self.group[rows]] - self.y[rows]
            u[k] = away @ away / 2
            np.add.at(g[k], self.group[rows], away)
        return u, g

    def prior(self, points):
        return np.sum(points**2, axis=1) / 2, points


class Noisy(Rows):
    """N(0, I) whose batches bring noise: of a fixed size, and growing with the distance."""

    def __init__(self, additive, multiplicative, rows=1000, batch_size=10):
        super().__init__(len(additive), rows, batch_size)
        self.additive, self.multiplicative = additive, multiplicative
        noise = np.random.default_rng(8).standard_normal((2, rows, self.dimension))
        noise -= noise.mean(axis=1, keepdims=True)
        self.noise = noise / noise.std(axis=1, keepdims=True)

    def full(self, points):
        return np.sum(points**2, axis=1) / 2, points.copy()

    def batch(self, points, rows):
        a, b = self.noise[:, rows[:, 0]]
        u, g = self.full(points)
        return u, g + self.additive * a + self.multiplicative * b * points

    def block(self, points, which):
        return self.full(points)[1] / self.n_blocks


class Quartic(Noisy):
    """Curvature grows away from the centre."""

    def full(self, points):
        return np.sum(points**4, axis=1) / 4, points**3


def logistic(rows=2000, d=5, batch_size=50, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d)) * np.geomspace(0.1, 3, d)
    X[:, 0] = 1.0
    # A feature that one row in fifty has
    X[:, 1] = rng.random(rows) < 0.02
    theta = np.linspace(-0.5, 0.5, d)
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ theta))).astype(float)
    return Logistic(X, y, batch_size)


def correlated_columns(rows=6000, d=80, factors=6):
    """A regression on columns that factors make alike, and its Hessian at 0."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(rows, factors)) @ rng.normal(size=(factors, d)) * (0.8 / factors) ** 0.5
    X += 0.2**0.5 * rng.normal(size=X.shape)
    surface = Logistic(X, rng.random(rows) < 0.5, batch_size=60)
    return surface, surface.mean_hessian(np.zeros(d), np.zeros((d, d)), rng, points=1)
