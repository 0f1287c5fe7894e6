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
# # Quickstart
#
# Who earns more than 50,000 dollars a year? A Bayesian logistic regression on census records:
# 32,561 people to learn from, 16,281 to be tested on, 123 yes-or-no features. The model, down to
# its prior, is that of [Li et al. (2016)](https://doi.org/10.1609/aaai.v30i1.10199), the paper
# behind the sampler `MSGNHT`. Every update here looks at 500 people only.

# %%
import time

from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_sgmcmc as sg

# %% [markdown]
# ## Data
#
# Each of the 14 attributes of a person was cut into levels, and each level is one feature.

# %%
levels = {
    "age": ["youngest fifth", "second fifth", "middle fifth", "fourth fifth", "oldest fifth"],
    "work": "private|self-employed|own company|federal|local|state|without pay|never".split("|"),
    "weight": ["first fifth", "second fifth", "third fifth", "fourth fifth", "last fifth"],
    "education": (
        "bachelor|some college|11th|high school|prof. school|assoc. academic|assoc. vocational|9th|"
        "7th-8th|12th|master|1st-4th|10th|doctorate|5th-6th|preschool"
    ).split("|"),
    "years of education": ["1-8", "9", "10", "11-12", "13-16"],
    "marital status": (
        "married|divorced|never married|separated|widowed|spouse absent|in armed forces"
    ).split("|"),
    "job": (
        "tech support|craft, repair|other service|sales|manager|professional|handler, cleaner|"
        "machine operator|clerical|farming, fishing|transport|house servant|protection|military"
    ).split("|"),
    "relationship": "wife|own child|husband|not in family|other relative|unmarried".split("|"),
    "race": ["white", "Asian, Pacific", "American Indian", "other", "black"],
    "sex": ["female", "male"],
    "capital gain": ["no", "yes"],
    "capital loss": ["no", "yes"],
    "hours a week": ["shortest", "below 40", "about 40", "above 40", "longest"],
    "born in": [f"country {i}" for i in range(1, 42)],
}
features = [f"{group}: {level}" for group in levels for level in levels[group]]
group = np.repeat(np.arange(len(levels)), [len(names) for names in levels.values()])

file = np.load("../tests/data/a9a.npz")
X_train, X_test = (
    np.unpackbits(file[part], axis=1)[:, : len(features)] for part in ("X_train", "X_test")
)
y_train, y_test = (file[part].astype("int32") for part in ("y_train", "y_test"))
N = len(X_train)

# %% [markdown]
# ## Units
#
# A stochastic-gradient sampler has no accept-reject step that would repair a bad step size, so it
# wants to know how wide the posterior is. The curvature at the mode says that well enough, and
# Newton's method finds the mode in a few steps. (Whitening and step sizes are chosen
# automatically in the next release. For now they are yours to give.)
#
# The prior of each coefficient is N(0, 10). We read 10 as a variance: so the paper writes its
# other normal distributions.

# %%
prior_variance = 10.0

mode = np.zeros(len(features))
for _ in range(10):
    p = 1 / (1 + np.exp(-(X_train @ mode)))
    gradient = X_train.T @ (p - y_train) + mode / prior_variance
    curvature = (X_train.T * (p * (1 - p))) @ X_train + np.eye(len(features)) / prior_variance
    mode -= np.linalg.solve(curvature, gradient)

precision, axes = np.linalg.eigh(curvature)
sd = 1 / np.sqrt(precision)
print(f"posterior sds along the axes of the curvature: {sd.min():.3f} to {sd.max():.2f}")

# %% [markdown]
# Along some axes the posterior is 500 times wider than along others: adding a constant to all
# coefficients of one attribute and taking it from those of another changes no prediction, so
# that only the prior holds these directions. `scale=` takes one number for each coordinate, which
# cannot undo such correlations. So the model is written in coordinates `u` along the axes. That
# is the same model: a rotation leaves independent normal priors of equal variance as they are.
#
# ## Model
#
# Everything else is plain PyMC. `pm.Minibatch` draws the rows of `x` and `y` together, and
# `total_size` says how many people a batch stands for.

# %%
with pm.Model(coords={"feature": features, "axis": np.arange(len(features))}) as model:
    x, y = pm.Minibatch(X_train, y_train, batch_size=500)
    u = pm.Normal("u", 0, np.sqrt(prior_variance), dims="axis")
    pm.Bernoulli("y", logit_p=x @ pm.math.dot(axes, u), observed=y, total_size=N)

# %% [markdown]
# ## Four samplers
#
# In units of `scale`, the gradient of a batch of 500 is the true one plus noise of variance
# N / 500 = 65. That noise decides the step size h (see [the mathematics](../mathematics.md)):
#
# - Langevin methods take the noise for heat. It adds hσ²/2 to the variance of a draw: h = 0.2/σ²
#   adds 10 %, 5 % of an sd. Half of h halves that and takes twice as long.
# - `MSGNHT` measures the heat and takes it out again. It works up to about h = 2/σ².
#
# No coefficient here is bounded. The transforms of `CoRVSGLD` and the mirror maps of `SMLD` are
# then both the identity, and the two are one and the same algorithm. They get different seeds,
# and what differs between them is Monte-Carlo error.

# %%
noise = N / 500
with model:
    steps = {
        "CoRVSGLD": sg.CoRVSGLD(step_size=0.2 / noise, thin=200, scale={"u": sd}),
        "FLA": sg.FLA(step_size=0.2 / noise, thin=200, scale={"u": sd}, alpha=1.8),
        "MSGNHT": sg.MSGNHT(step_size=2 / noise, thin=100, scale={"u": sd}),
        "SMLD": sg.SMLD(step_size=0.2 / noise, thin=200, scale={"u": sd}),
    }

draws, seconds = {}, {}
for seed, (name, step) in enumerate(steps.items()):
    start = time.perf_counter()
    with model:
        draws[name] = pm.sample(
            step=step, draws=500, tune=100, chains=2, cores=2, random_seed=seed, progressbar=False
        )
    seconds[name] = time.perf_counter() - start

# %% [markdown]
# Each result is an ordinary `DataTree`. The coefficients of the features are a rotation away. A
# coefficient by itself depends on the prior more than on the data (see above), so we look at
# *effects*: how much a level moves the log-odds, compared with the average person.

# %%
rotation = xr.DataArray(axes, dims=("feature", "axis"), coords={"feature": features})
share = X_train.mean(axis=0) * (group[:, None] == group)
share = xr.DataArray(share / share.sum(axis=1, keepdims=True), dims=("feature", "other"))

for dt in draws.values():
    beta = xr.dot(rotation, dt.posterior["u"], dim="axis")
    average = xr.dot(share, beta.rename(feature="other").drop_vars("other"), dim="other")
    dt["posterior/beta"] = beta.transpose("chain", "draw", "feature")
    dt["posterior/effect"] = (beta - average).transpose("chain", "draw", "feature")

draws["MSGNHT"]

# %% [markdown]
# ## Did the chains mix?
#
# The usual instruments work, and the trace and rank plots look as they should.

# %%
some = {"feature": ["age: youngest fifth", "hours a week: longest", "marital status: married"]}
az.plot_trace_dist(draws["MSGNHT"], var_names="effect", coords=some, compact=False)

# %%
az.plot_rank(draws["MSGNHT"], var_names="effect", coords=some)

# %% [markdown]
# R-hat and effective sample sizes, the worst over all 123 effects. **They do not see bias.** R-hat
# asks whether chains agree with each other, and chains that all sample the same wrong
# distribution agree perfectly. SG-MCMC has such a bias: its step size is not zero and its gradients
# are noisy. So the last columns compare with what is known here: how wide the draws are along the
# axes, by their interquartile range, in units of the curvature's sd, and how wide theory says that
# they should be.

# %%
predicted = dict.fromkeys(("CoRVSGLD", "SMLD"), np.sqrt(1.1)) | {"MSGNHT": 1.0}
rows = {}
for name, dt in draws.items():
    low, high = dt.posterior["u"].quantile([0.25, 0.75], dim=("chain", "draw")).values
    rows[name] = {
        "R-hat": float(az.rhat(dt, var_names="effect")["effect"].max()),
        "ESS, bulk": int(az.ess(dt, var_names="effect")["effect"].min()),
        "ESS, tail": int(az.ess(dt, var_names="effect", method="tail")["effect"].min()),
        "width": np.median((high - low) / (1.349 * sd)),
        "predicted": predicted.get(name, np.nan),
        "seconds": seconds[name],
    }
mixing = pd.DataFrame(rows).T.astype({"ESS, bulk": int, "ESS, tail": int})
mixing.round({"R-hat": 3, "width": 3, "predicted": 3, "seconds": 1})

# %% [markdown]
# `MSGNHT` is both nearest to the truth and the quickest to mix. `FLA` samples a heavy-tailed law
# on purpose: α = 1.8 has no variance, so only its medians and quantiles mean anything, and they
# stay a little too wide however small the step (here gradient noise adds to that). Medians and
# quantiles are therefore what we report, for all four.

# %%
effect = draws["MSGNHT"].posterior["effect"]
low, median, high = effect.quantile([0.25, 0.5, 0.75], ("chain", "draw")).values
clear = np.abs(median) > 5 * (high - low)
largest = np.argsort(-np.where(clear, np.abs(median), 0))[:16]
largest = [features[i] for i in sorted(largest, key=lambda i: -median[i])]

summary = az.summary(
    draws["MSGNHT"], var_names="effect", coords={"feature": largest}, kind="all_median"
)
summary

# %% [markdown]
# The largest of the effects that stand out clearly, for all four samplers: medians, with 50 % and
# 89 % intervals. They are associations in data of 1994, nothing more.

# %%
forest = az.plot_forest(
    draws,
    var_names="effect",
    coords={"feature": largest},
    combined=True,
    point_estimate="median",
    ci_kind="eti",
    labels=["feature"],
    shade_label="feature",
    color=["#0072b2", "#e69f00", "#009e73", "#cc79a7"],
    alpha=[0, 0.08],
    figure_kwargs={"figsize": (10, 8), "width_ratios": [1, 2]},
    visuals={"labels": {"horizontal_align": "right"}, "point_estimate": {"size": 18}},
)
figure = forest.viz["figure"].item()
names_axis, axis = figure.axes
names_axis.set_xlim(-0.1, 0.005)
names_axis.set_axis_off()
axis.axvline(0, color="0.6", linewidth=1, zorder=0)
axis.set_xlabel("effect on the log-odds, compared with the average person")
figure.suptitle("What goes with an income above 50,000 dollars?", fontsize=15, y=0.91)
forest.add_legend(
    "model", title="", loc="lower right", bbox_to_anchor=(1, 0.05), bbox_transform=axis.transAxes
)

# %% [markdown]
# ## Predictions
#
# The predictive probability of a person of the test set is the mean over the draws. (For `FLA`
# too: a probability is bounded and has a mean, whatever its coefficients do.)

# %%
accuracy = {}
for name, dt in draws.items():
    beta = dt.posterior["beta"].stack(draw_of_all=("chain", "draw")).values[:, ::2]
    probability = (1 / (1 + np.exp(-(X_test @ beta)))).mean(axis=1)
    accuracy[name] = np.mean((probability > 0.5) == y_test)

# %%
png = Path("quickstart.png").resolve()
figure.savefig(png, dpi=150, bbox_inches="tight")
print(summary.to_string())
for name, value in accuracy.items():
    print(f"{name:9} {value:.2%}")
print(png)
