# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Logistic regression on a9a
#
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), Table 2: test accuracies of the
# multivariate thermostat (mSGNHT) and of stochastic-gradient HMC, each with the
# symmetric splitting (S) and with Euler's scheme (E). The paper's settings are batches
# of 10 of 32,561 people, a normal prior of variance 10, and 3,000 updates, of which 300
# are burn-in and every 50th is kept. The paper tests a large range of step sizes, but
# prints neither the range nor the diffusion. Our range is below, and D = 1 is also the
# friction of SGHMC. The predicted probability is averaged over the draws.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from reproduction import QUIET, SMALL, Reproduction
from scipy.special import expit

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
reproduction = Reproduction("msgnht_a9a", "Li et al. (2016)", "Table 2: logistic regression")
CHAINS = 2 if SMALL else 8
STEPS = (1e-3,) if SMALL else (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)

file = np.load("../../tests/data/a9a.npz")
X, X_test = (np.unpackbits(file[part], axis=1)[:, :123] for part in ("X_train", "X_test"))
y, y_test = (file[part].astype("int32") for part in ("y_train", "y_test"))


# %%
def model(batch_size):
    with pm.Model() as built:
        rows, labels = pm.Minibatch(X.astype(float), y, batch_size=batch_size)
        beta = pm.Normal("beta", 0, np.sqrt(10), shape=123, initval=np.zeros(123))
        pm.Bernoulli("rich", logit_p=rows @ beta, observed=labels, total_size=len(y))
    return built


def accuracy(posterior):
    """Share of test people whose label is the likelier one, for each chain."""
    logits = posterior["beta"].values @ X_test.T.astype(float)
    probability = expit(logits).mean(axis=1)
    return ((probability > 0.5) == y_test).mean(axis=1)


def measure(method, integrator, h):
    own = {"thermostat_mass": 1.0} if method is sg.MSGNHT else {}
    with model(10):
        step = method(
            integrator=integrator, step_size=h, thin=50, scale=None, gradient="plain", batches=1,
            batch="random", backend="jax", **own,
        )  # fmt: skip
        try:
            dt = pm.sample(
                step=step, draws=54, tune=6, chains=CHAINS, random_seed=1,
                **QUIET,
            )  # fmt: skip
        except pm.exceptions.SamplingError:
            return np.nan, np.nan
    reproduction.count(CHAINS * 3000)
    found = 100 * accuracy(dt.posterior)
    return found.mean(), found.std(ddof=1) / np.sqrt(CHAINS)


# %% [markdown]
# ## Four samplers over step sizes

# %%
METHODS = {
    "mSGNHT-S": (sg.MSGNHT, "ssi", 84.95),
    "mSGNHT-E": (sg.MSGNHT, "euler", 84.72),
    "SGHMC-S": (sg.SGHMC, "ssi", 84.56),
    "SGHMC-E": (sg.SGHMC, "euler", 84.51),
}
found = {
    name: np.array([measure(method, integrator, h) for h in STEPS])
    for name, (method, integrator, _) in METHODS.items()
}
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in found.items():
    axis.errorbar(STEPS, *values.T, marker="o", label=name)
axis.set(xscale="log", xlabel="step size h", ylabel="test accuracy, %", ylim=(75, 86))
axis.legend()
plt.show()
reproduction.picture(figure)

# %%
for name, (_, _, printed) in METHODS.items():
    best = int(np.nanargmax(found[name][:, 0]))
    mean, error = found[name][best]
    reproduction.verdict(
        f"{printed:.2f} % for {name} (Table 2)",
        f"{mean:.2f} ± {error:.2f} % at its best step size, {STEPS[best]:g}",
        abs(mean - printed) < 0.3 and error < 0.1,
    )
for family in ("mSGNHT", "SGHMC"):
    s, e = found[f"{family}-S"], found[f"{family}-E"]
    worse = [
        h
        for h, a, b in zip(STEPS, s, e, strict=True)
        if b[0] - a[0] > 2 * np.hypot(a[1], b[1]) or (np.isnan(a[0]) and not np.isnan(b[0]))
    ]
    reproduction.verdict(
        f"the splitting of {family} is at least as good as Euler's scheme at every step size",
        "it is at all of them" if not worse else f"it is worse at h = {worse}",
        not worse,
    )

# %% [markdown]
# ## Untuned
#
# These runs have the package's defaults: batches of 500, nothing set.

# %%
for name, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    with model(500):
        dt = pm.sample(
            step=method(backend="jax"), draws=20 if SMALL else 500, tune=10 if SMALL else 100,
            chains=1 if SMALL else 2,
            random_seed=1, **QUIET,
        )  # fmt: skip
    print(f"{name}: accuracy of each chain {np.round(100 * accuracy(dt.posterior), 2)} %")

# %%
reproduction.end()
