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
# # NUTS, ADVI or SG-MCMC?
#
# This page fits one model to data of four sizes, from a thousand rows to a million.
# NUTS and this package sample the posterior, and ADVI approximates it. We compare their
# seconds and their errors. At a million rows NUTS is left out, as it would take too
# long here. The page is for users of PyMC who wonder which method to use. It takes five
# minutes.

# %%
import logging
import os
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
SMALL = bool(os.environ.get("SMALL"))
SIZES = (1_000, 10_000) if SMALL else (1_000, 10_000, 100_000, 1_000_000)
# Beyond, NUTS would take too long for this page
MOST_FOR_NUTS = 100_000
GROUPS = 12

# %% [markdown]
# ## Data
#
# The data are simulated. Each row is a person who answers yes or no. The answer depends
# on the region (there are 12), on age in ten classes, and on sex.


# %%
def made(rows):
    """Return region, age and sex of each row, and the answers."""
    rng = np.random.default_rng(1)
    effect = rng.normal(0, 0.5, GROUPS)
    region, age, sex = (rng.integers(0, n, rows) for n in (GROUPS, 10, 2))
    logit = -0.5 + effect[region] + 0.8 * (age - 4.5) / 4.5 + 0.3 * sex
    answer = rng.random(rows) < 1 / (1 + np.exp(-logit))
    return region, age, sex, answer.astype("int32")


# %% [markdown]
# ## One model, three methods
#
# All methods use the same variables. NUTS gets half of its usual draws. ADVI uses
# batches of 500 rows and Adam. With PyMC's default optimiser, Adagrad, it would not
# have converged after the same number of steps. SG-MCMC is `CoRVSGLD` with its default
# settings.


# %%
def logit_of(region, age, sex):
    """Return what each row's answer depends on, of new variables."""
    intercept, sd = pm.Normal("intercept", 0, 2), pm.HalfNormal("sd", 1)
    effect = pm.Normal("effect", intercept, sd, shape=GROUPS)
    of_age, of_sex = pm.Normal("of_age", 0, 1), pm.Normal("of_sex", 0, 1)
    return effect[region] + of_age * (age - 4.5) / 4.5 + of_sex * sex


def nuts(*who, answer):
    with pm.Model():
        pm.Bernoulli("answer", logit_p=logit_of(*who), observed=answer)
        return pm.sample(500, tune=500, nuts_sampler="pymc", **HOW)


def advi(*who, answer):
    with pm.Model():
        *who, some = pm.Minibatch(*who, answer, batch_size=500)
        logit = logit_of(*who)
        pm.Bernoulli("answer", logit_p=logit, observed=some, total_size=len(answer))
        adam = pm.adam(learning_rate=0.01)
        fit = pm.fit(20_000, obj_optimizer=adam, random_seed=1, progressbar=False)
        return fit.sample(2_000, random_seed=1)


def sg_mcmc(*who, answer):
    with pm.Model():
        pm.Bernoulli("answer", logit_p=logit_of(*who), observed=answer)
        return pm.sample(step=sg.CoRVSGLD(), **HOW)


HOW = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}
METHODS = {"NUTS": nuts, "ADVI": advi, "SG-MCMC": sg_mcmc}

# %% [markdown]
# We need a reference. All people of one region, age and sex are alike in this model. So
# 240 counts say as much as a million rows, and NUTS on the counts is quick at every
# size. If each person had a number of their own, such as an income, there would be no
# such counts.


# %%
def reference(*who, answer):
    """Return draws of NUTS on the counts."""
    shape = GROUPS, 10, 2
    cell, cells = np.ravel_multi_index(who, shape), np.arange(np.prod(shape))
    number = np.bincount(cell, minlength=len(cells))
    yes = np.bincount(cell, answer, len(cells)).astype(int)
    with pm.Model():
        logit = logit_of(*np.unravel_index(cells, shape))
        pm.Binomial("answer", number, logit_p=logit, observed=yes)
        return pm.sample(2_000, nuts_sampler="pymc", target_accept=0.98, **HOW)


def moments(result):
    """Return the means and the sds of all parameters."""
    draws = result.posterior.to_dataset().stack(sample=("chain", "draw"))
    values = [x.transpose(..., "sample").values for x in draws.data_vars.values()]
    values = np.concatenate([x.reshape(-1, x.shape[-1]) for x in values])
    return values.mean(axis=1), values.std(axis=1)


lines = []
for size in SIZES:
    *who, answer = made(size)
    mean, sd = moments(reference(*who, answer=answer))
    for name, method in METHODS.items():
        if name == "NUTS" and size > MOST_FOR_NUTS:
            continue
        start = time.process_time()
        found_mean, found_sd = moments(method(*who, answer=answer))
        lines.append(
            {
                "rows": size,
                "method": name,
                "seconds": time.process_time() - start,
                "error of means": np.abs((found_mean - mean) / sd).max(),
                "least sd": (found_sd / sd).min(),
                "largest sd": (found_sd / sd).max(),
            }
        )
table = pd.DataFrame(lines)

# %% [markdown]
# ## What came out
#
# Seconds are those of the processor, from the call to the result, compilation included.
# The error of means is the largest over the 16 parameters, in posterior sds. The last
# two columns are the smallest and the largest sd, divided by the reference's: 1 is
# right.

# %%
table.set_index(["rows", "method"]).round(2)

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
colors = {"NUTS": "#d55e00", "ADVI": "#009e73", "SG-MCMC": "#0072b2"}
for name, found in table.groupby("method", sort=False):
    style = {"color": colors[name], "marker": "o", "label": name}
    axes[0].loglog(found["rows"], found["seconds"], **style)
    axes[1].loglog(found["rows"], found["error of means"], **style)
    axes[2].semilogx(found["rows"], found["least sd"], **style)
    axes[2].semilogx(found["rows"], found["largest sd"], **style)
for axis, title in zip(
    axes, ("seconds", "error of means, in sds", "range of sds"), strict=True
):
    axis.set(title=title, xlabel="rows")
axes[2].axhline(1, color="0.7", zorder=0)
legend = axes[0].legend()

# %% [markdown]
# ## What to choose
#
# - **Few rows: NUTS.** It has no bias. For this model it is also the faster one, up to
#   about ten thousand rows.
# - **Many rows: SG-MCMC.** Its seconds grow far more slowly than the number of rows,
#   those of NUTS in proportion to it. Its means and sds are as accurate as those of
#   NUTS.
# - **A first look: ADVI.** Its seconds hardly depend on the number of rows: for few it
#   is the slowest of the three, for a million the quickest. But the noise of its steps
#   does not shrink when the posterior shrinks. So the more rows there are, the more sds
#   its means are off.
# - **Rows that depend on each other**, such as those of a Gaussian process: NUTS. The
#   step methods of this package notice the dependence and use all rows for each update.
#
# [Comparison with other methods](../rivals) has more models, and more methods.
