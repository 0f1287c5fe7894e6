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
# # Incomes of a census, by four samplers
#
# Who earns more than 50,000 dollars a year? A Bayesian logistic regression on census records:
# 32,561 people to learn from, 16,281 to be tested on, 123 yes-or-no features. Data and model are
# those of [Li et al. (2016)](https://arxiv.org/abs/1512.07662), the paper behind the sampler
# `MSGNHT`. The samplers are stochastic-gradient MCMC (SG-MCMC): every update takes its gradient
# from a few of the people.

# %%
import time

from multiprocessing import get_all_start_methods
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_sgmcmc as sg

# %% [markdown]
# ## Data
#
# Each of 14 attributes of a person is cut into levels, and each level is one feature.

# %%
fifths = ["lowest fifth", "second fifth", "middle fifth", "fourth fifth", "highest fifth"]
levels = {
    "age": fifths,
    "work": "private|self-employed|own company|federal|local|state|without pay|never".split("|"),
    "census weight": fifths,
    "education": (
        "bachelor|some college|11th|high school|prof. school|assoc. academic|assoc. vocational|9th|"
        "7th-8th|12th|master|1st-4th|10th|doctorate|5th-6th|preschool"
    ).split("|"),
    "years of education": ["1-8", "9", "10", "11-12", "13-16"],
    "marital status": (
        "married|divorced|never married|separated|widowed|spouse absent|spouse in armed forces"
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
    "hours a week": ["fewest", "below 40", "about 40", "above 40", "most"],
    "born in": [f"country {i}" for i in range(1, 42)],
}
features = [f"{attribute}: {level}" for attribute in levels for level in levels[attribute]]
attribute_of = np.repeat(np.arange(len(levels)), [len(names) for names in levels.values()])

file = np.load("../tests/data/a9a.npz")
X_train, X_test = (
    np.unpackbits(file[part], axis=1)[:, : len(features)] for part in ("X_train", "X_test")
)
y_train, y_test = (file[part].astype("int32") for part in ("y_train", "y_test"))
N = len(X_train)

# %% [markdown]
# ## Model
#
# Plain PyMC. The prior of each coefficient is a standard normal distribution: a single level seldom
# changes the odds by more than a factor of ten. (The paper's prior is wider. It leaves the
# coefficients of rare levels open and changes next to nothing in the predictions.)

# %%
with pm.Model(coords={"feature": features}) as model:
    beta = pm.Normal("beta", 0, 1, dims="feature")
    pm.Bernoulli("rich", logit_p=X_train.astype(float) @ beta, observed=y_train)

# %% [markdown]
# ## Four samplers
#
# There is nothing to tune by hand. The step method sees that the likelihood is a sum over people, and
# chooses the size of its batches. Before its first draw each chain looks for the centre and the
# shape of the posterior, measures the noise of its gradients, chooses its step size and checks
# itself. One line in the log says what it found. That is needed here: the posterior is hundreds
# of times wider in some directions than in others. (Add a constant to all coefficients of one
# attribute and take it from those of another: no prediction changes, and only the prior holds
# these directions.)
#
# No coefficient here is bounded. So the transforms of `CoRVSGLD` and the mirror maps of `SMLD`
# are both the identity, and the two are the same algorithm. Each sampler gets its own seed, so
# these two differ by Monte-Carlo error only.

# %%
steps = {"CoRVSGLD": sg.CoRVSGLD, "FLA": sg.FLA, "MSGNHT": sg.MSGNHT, "SMLD": sg.SMLD}

# Where processes are not forked, a program needs `if __name__ == "__main__":` to start some
fork = "fork" in get_all_start_methods()
options = {"cores": 2, "mp_ctx": "fork"} if fork else {"cores": 1}
draws, seconds = {}, {}
for seed, (name, method) in enumerate(steps.items()):
    start = time.perf_counter()
    with model:
        draws[name] = pm.sample(
            draws=500, chains=2, step=method(), random_seed=seed, progressbar=False, **options
        )
    seconds[name] = time.perf_counter() - start

# %% [markdown]
# Each result is the `DataTree` that `pm.sample` always returns. Coefficients by themselves depend
# on the prior (see above), so we look at *effects*: what a level adds to the log-odds, compared
# with the average person.

# %%
share = X_train.mean(axis=0) * (attribute_of[:, None] == attribute_of)
share = xr.DataArray(share / share.sum(axis=1, keepdims=True), dims=("feature", "other"))

for dt in draws.values():
    beta = dt.posterior["beta"]
    average = xr.dot(share, beta.rename(feature="other").drop_vars("other"), dim="other")
    dt["posterior/effect"] = (beta - average).transpose("chain", "draw", "feature")

draws["MSGNHT"]

# %% [markdown]
# ## Did the chains mix?
#
# The usual instruments work.

# %%
some = {"feature": ["age: lowest fifth", "hours a week: most", "marital status: married"]}
traces = az.plot_trace_dist(
    draws["MSGNHT"],
    var_names="effect",
    coords=some,
    compact=False,
    figure_kwargs={"figsize": (11, 8), "layout": "constrained"},
)

# %%
ranks = az.plot_rank(
    draws["MSGNHT"], var_names="effect", coords=some, figure_kwargs={"figsize": (11, 3.5)}
)

# %% [markdown]
# The table has R-hat and effective sample sizes, the worst over the 123 effects. **They do not
# see bias.** R-hat asks whether the chains agree with each other, and chains that all sample the
# same wrong distribution agree perfectly. SG-MCMC goes wrong in this way, because its gradients
# are noisy and its step size is not zero. Two statistics do see it. `config_temperature` is 1 on
# average where the draws have the right spread. `noise_ratio` is the share that gradient noise
# adds to their variance (for `MSGNHT` to its thermostat, which absorbs it). `batches` says how
# many batches were averaged for one update. Where something is off, a warning says so after
# sampling.

# %%
rows = {}
for name, dt in draws.items():
    stats = dt.sample_stats.mean()
    rows[name] = {
        "R-hat": az.rhat(dt, var_names="effect")["effect"].max().item(),
        "ESS bulk": az.ess(dt, var_names="effect")["effect"].min().item(),
        "ESS tail": az.ess(dt, var_names="effect", method="tail")["effect"].min().item(),
        "seconds": seconds[name],
        "temperature": stats["config_temperature"].item(),
        "noise ratio": stats["noise_ratio"].item(),
        "batches": stats["batches"].item(),
    }
mixing = pd.DataFrame(rows).T.round(
    {"R-hat": 3, "ESS bulk": 0, "ESS tail": 0, "seconds": 0, "temperature": 3, "noise ratio": 3}
)
mixing

# %% [markdown]
# `FLA` samples a heavy-tailed distribution on purpose. With α = 1.8 it has no variance, and the
# error of its quantiles does not vanish with the step size. Its medians and quantiles mean
# something; its means, its sds and its temperature do not. So we report medians and quantiles for
# all four.

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
# The largest of the effects that stand out clearly, by all four samplers: medians, 50 % and 89 %
# intervals. They are associations in the data of 1994, nothing more.

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
png = Path("census.png").resolve()
figure.savefig(png, dpi=150, bbox_inches="tight")

# %% [markdown]
# ## Predictions
#
# The predictive probability for a person of the test set is the mean of the probabilities over the
# draws. (For `FLA` too: a probability is bounded, so that its mean exists whatever the coefficients
# do.)

# %%
accuracy = {}
for name, dt in draws.items():
    beta = dt.posterior["beta"].values.reshape(-1, len(features))[::2]
    probability = (1 / (1 + np.exp(-(X_test @ beta.T)))).mean(axis=1)
    accuracy[name] = np.mean((probability > 0.5) == y_test)

print(summary.to_string(), "\n")
print(mixing.to_string(na_rep=""), "\n")
print("Test accuracy (the paper's mSGNHT-S: 84.95%)")
for name, value in accuracy.items():
    print(f"    {name:8} {value:.2%}")
print(f"\n{png}")
