"""Integer labels of minibatches in float32."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("int16", "bool", "float32")]


@pytest.mark.parametrize("dtype", ["uint8", *OTHERS])
def test_labels_of_these_types_are_sampled(dtype):
    with pytensor.config.change_flags(floatX="float32"), pm.Model():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 2)).astype("float32")
        label = (X[:, 0] > 0).astype(dtype)
        x, seen = pm.Minibatch(X, label, batch_size=50)
        w = pm.Normal("w", 0, 1, shape=(2, 2))
        pm.Categorical("y", logit_p=x @ w, observed=seen, total_size=400)
        result = pm.sample(
            draws=50, step=sg.MSGNHT(), chains=1, cores=1, random_seed=1, progressbar=False
        )
    assert result.posterior["w"].dtype == np.float32
    assert result.posterior["w"].mean(("chain", "draw"))[0, 1] > 0.5


def test_rows_of_counts_whose_rates_are_rounded_are_independent():
    """The density of counts is double: a row's rate may differ in its last digit with its place."""
    with pytensor.config.change_flags(floatX="float32"), pm.Model():
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(100_000, 20)).astype("float32"), rng.poisson(2, 100_000)
        x, n = pm.Minibatch(X, y.astype("uint8"), batch_size=50)
        rate = pm.math.exp(x @ pm.Normal("b", shape=20))
        pm.Poisson("y", rate, observed=n, total_size=len(X))
        sg.CoRVSGLD()
