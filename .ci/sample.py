"""Sample two parameters with the installed package: python -I sample.py BACKEND."""

import sys

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

[backend] = sys.argv[1:]
assert Path(sg.__file__).is_relative_to(sys.prefix), sg.__file__
assert (find_spec("jax") is not None) == (backend == "jax")

data = np.random.default_rng(1).normal(2.0, 3.0, size=1000)
with pm.Model(coords={"obs": range(len(data))}):
    mean = pm.Normal("mean", 0, 10)
    sd = pm.HalfNormal("sd", 10)
    pm.Normal("y", mean, sd, observed=data, dims="obs")
    step = sg.CoRVSGLD(batch_size=100, batch_dim="obs")
    draws = pm.sample(
        draws=100, tune=100, chains=2, cores=1, step=step, random_seed=1, progressbar=False
    ).posterior
# The posterior's sds are 0.1 and 0.07
for name, expected in (("mean", data.mean()), ("sd", data.std())):
    found = float(draws[name].mean())
    assert abs(found - expected) < 0.1, (name, found, expected)
print(f"Sampled with {backend}: {sg.__version__}")
