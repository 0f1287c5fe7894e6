"""A Bayesian net."""

import numpy as np
import pymc as pm


def net(width=(0.5, 1.0), hidden=12, batch_size=None):
    """A net of two hidden layers on a wave, noise of sd 0.1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(400, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=400)
    inner, outer = width
    with pm.Model() as model:
        x, seen = (X, y) if batch_size is None else pm.Minibatch(X, y, batch_size=batch_size)
        W = pm.Normal("W", 0, 2, shape=(1, hidden))
        b = pm.Normal("b", 0, 2, shape=hidden)
        V, c = pm.Normal("V", 0, inner, shape=(hidden, hidden)), pm.Normal("c", shape=hidden)
        u = pm.Normal("u", 0, outer, shape=hidden)
        h = pm.math.tanh(pm.math.tanh(x @ W + b) @ V + c)
        pm.Normal("y", h @ u, 0.1, observed=seen, total_size=len(y))
    return model
