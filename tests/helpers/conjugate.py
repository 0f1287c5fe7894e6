"""Models whose posterior is known exactly.

Each function that builds a model returns it with the exact mean and sd of its variables, or with
their law.
"""

import numpy as np
import pymc as pm

from scipy import stats


def regression(batch_size=50, seed=5):
    """Slopes and precision of a minibatched regression."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 2))
    y = X @ [1.0, -0.5] + 0.8 * rng.normal(size=1000)
    with pm.Model() as model:
        x, batch = pm.Minibatch(X, y, batch_size=batch_size)
        precision = pm.Gamma("precision", 2.0, 1.0)
        slopes = pm.Normal("slopes", 0.0, tau=0.1 * precision, shape=2)
        pm.Normal("y", x @ slopes, tau=precision, observed=batch, total_size=1000)
    K = X.T @ X + 0.1 * np.eye(2)
    m = np.linalg.solve(K, X.T @ y)
    a, b = 2.0 + 500, 1.0 + (y @ y - m @ K @ m) / 2
    sds = np.sqrt(b / (a - 1) * np.diag(np.linalg.inv(K)))
    return model, {"slopes": (m, sds), "precision": (a / b, np.sqrt(a) / b)}


def normal_means(data, sd, *, prior=10.0, batch_size=None):
    """Means "mu" of the columns of normal data of known sd: N(0, prior²) before the data."""
    rows, columns = data.shape
    with pm.Model() as model:
        y = data if batch_size is None else pm.Minibatch(data, batch_size=batch_size)
        mu = pm.Normal("mu", 0, prior, shape=columns)
        pm.Normal("y", mu, sd, observed=y, total_size=batch_size and rows)
    precision = prior**-2 + rows / sd**2
    return model, data.sum(axis=0) / sd**2 / precision, precision**-0.5


def flat_means(data, sd, batch_size):
    """Means "x" of the columns of minibatched normal data of known sd, with a flat prior."""
    rows, columns = data.shape
    with pm.Model() as model:
        x = pm.Flat("x", shape=columns, initval=np.zeros(columns))
        y = pm.Minibatch(data, batch_size=batch_size)
        pm.Normal("y", x, sd, observed=y, total_size=rows)
    return model


def location_and_precision(y):
    """mu | tau ~ N(m, 1 / (k tau)) and tau ~ Gamma(a, b)."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 3, 4)
        mu = pm.Normal("mu", 0, tau=0.5 * tau)
        pm.Normal("y", mu, tau=tau, observed=y)
    k, a = 0.5 + len(y), 3 + len(y) / 2
    m = y.sum() / k
    b = 4 + (np.sum((y - y.mean()) ** 2) + 0.5 * len(y) / k * y.mean() ** 2) / 2
    return model, {"mu": (m, np.sqrt(b / (k * (a - 1)))), "tau": (a / b, a**0.5 / b)}


def slopes_of(X, y, noise, prior=10.0):
    """Exact mean and covariance of slopes with priors N(0, prior²), at a known sd of the noise."""
    X, y = X.astype(float), y.astype(float)
    covariance = np.linalg.inv(X.T @ X / noise**2 + np.eye(X.shape[1]) / prior**2)
    return covariance @ (X.T @ y) / noise**2, covariance


def simplexes(count):
    """So many simplexes "x" of one law."""
    law = stats.dirichlet([2.0, 3.0, 5.0])
    with pm.Model() as model:
        pm.Dirichlet("x", np.tile(law.alpha, (count, 1)))
    return model, law


def chances_of_labels():
    """Chances "x" of four labels, of 400 minibatched rows."""
    rng = np.random.default_rng(0)
    rows, alpha = 400, np.array([0.5, 1.0, 1.0, 2.0])
    counts = np.eye(4)[rng.choice(4, p=[0.1, 0.2, 0.3, 0.4], size=rows)]
    with pm.Model() as model:
        x = pm.Dirichlet("x", alpha)
        batch = pm.Minibatch(counts.astype("int32"), batch_size=100)
        pm.Multinomial("y", n=1, p=x, observed=batch, total_size=rows)
    return model, stats.dirichlet(alpha + counts.sum(axis=0))
