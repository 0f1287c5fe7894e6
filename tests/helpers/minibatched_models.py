"""Models written twice, with minibatches and without, and PyMC's own density of them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from helpers.modes import PLAIN


def data(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


# Each model is written twice, with ``batched`` and ``total`` to tell them apart
def regression(batched, total):
    """Two likelihoods on one batch of constants, group indices, a start of the user's."""
    X, y = data(0, (60, 3), 60)
    groups = np.arange(60, dtype=np.int32) % 4
    x, g, y, z = batched(X, groups, y, X[:, 0] > 0.3, batch_size=7)
    intercept = pm.Normal("intercept", 0.0, 2.0)
    slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
    spread = pm.HalfNormal("spread", 1.0, initval=0.5)
    effects = pm.Normal("effects", 0.0, 1.0, shape=4)
    sd = pm.HalfNormal("sd", 1.0)
    pm.Normal("y", intercept + x @ slopes + spread * effects[g], sd, observed=y, **total(60))
    pm.Bernoulli("z", logit_p=x @ slopes, observed=z, **total(60))


def two_batches(batched, total):
    """Data containers with dims, in two independent batches of different lengths."""
    X, y, w = data(1, 60, 60, 45)
    x = pm.Data("x_data", X, dims="row")
    y = pm.Data("y_data", y, dims="row")
    w = pm.Data("w_data", w, dims="other_row")
    (x, y), (w, n) = batched(x, y, batch_size=7), batched(w, np.arange(45) % 5.0, batch_size=8)
    mean = pm.Normal("mean", 0.0, 1.0, shape=2)
    rate = pm.Gamma("rate", 2.0, 1.0)
    pm.Normal("y", mean[0] + mean[1] * x, 0.7, observed=y, **total(60))
    pm.Poisson("n", rate * pt.exp(mean[1] * w), observed=n, **total(45))


def rows_of_several_dimensions(batched, total):
    """Matrices as observed variables, with an integer or a list as total_size; N = 4B."""
    X, Y, Z = data(2, (44, 2), (44, 3), (44, 3))
    x, y, z = batched(X, Y, Z, batch_size=11)
    weights = pm.Normal("weights", 0.0, 1.0, shape=(2, 3))
    sds = pm.HalfNormal("sds", 1.0, shape=3)
    pm.Normal("y", x @ weights, sds, observed=y, **total([44, None]))
    pm.StudentT("x", 4.0, mu=y @ weights.T, sigma=1.0, observed=x, **total([44, ...]))
    pm.MvNormal("z", weights[0], np.diag([1.0, 2.0, 3.0]) + sds[0], observed=z, **total(44))


def kinds_of_likelihoods(batched, total):
    """Censored, a mixture and a distribution of the user's own."""
    [y] = data(3, 47)
    low, y, z, w = batched(np.clip(y, -0.5, 1.0), y, 2 * y, np.exp(y), batch_size=13)
    mean = pm.Normal("mean", [0.0, 1.0], 1.0)
    sd = pm.HalfNormal("sd", 1.0)

    def laplace(value, mean, sd):
        return -pt.abs(value - mean) / sd - pt.log(2 * sd)

    def log_normal(mean, size):
        return pt.exp(pm.Normal.dist(mean, 1.0, size=size))

    normal = pm.Normal.dist(mean[0], sd)
    pm.Censored("censored", normal, lower=-0.5, upper=1.0, observed=low, **total(47))
    pm.NormalMixture("mixture", [0.3, 0.7], mean, sd, observed=y, **total(47))
    pm.CustomDist("custom", mean[1], sd, logp=laplace, observed=z, **total(47))
    pm.CustomDist("by_dist", mean[0], dist=log_normal, observed=w, **total(47))


def mediation(batched, total):
    """An observed variable that another one depends on."""
    x, m, y = batched(*data(4, 60, 60, 60), batch_size=7)
    mediator = pm.Normal("m", pm.Normal("a") * x, 0.6, observed=m, **total(60))
    pm.Normal("y", x + pm.Normal("b") * mediator, pm.HalfNormal("sd"), observed=y, **total(60))


MODELS = [regression, two_batches, rows_of_several_dimensions, kinds_of_likelihoods, mediation]


def with_batches(build):
    def batched(*arrays, batch_size):
        return pm.Minibatch(*arrays, batch_size=batch_size)

    with pm.Model() as model:
        build(batched, lambda size: {"total_size": size})
    return model


def without_batches(build):
    with pm.Model() as model:
        build(lambda *arrays, batch_size: arrays, lambda size: {})
    return model


def with_dims(build):
    """Return a model whose rows have the dim "obs"."""

    def batched(*arrays, batch_size):
        return [
            pm.Data(f"rows_{k}", array, dims=("obs", *[None] * (array.ndim - 1)))
            for k, array in enumerate(arrays)
        ]

    with pm.Model() as model:
        build(batched, lambda size: {"dims": "obs"})
    return model


def reference(build):
    """Return a point of a model, and PyMC's log density and gradient without batches."""
    model = without_batches(build)
    point = model.initial_point()
    start = np.random.default_rng(4)
    phi = [point[v.name] + start.normal(0, 0.3, np.shape(point[v.name])) for v in model.value_vars]
    outputs = [model.logp(), model.dlogp()]
    logp, gradient = pm.compile(model.value_vars, outputs, mode=PLAIN)(*phi)
    return phi, float(logp), gradient
