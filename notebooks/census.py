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
# # Incomes of a census
#
# Who earned more than 50,000 dollars a year in 1994? This page fits a Bayesian logistic
# regression to census records. It has 32,561 people for training, 16,281 for testing,
# and 123 yes-or-no features. Data and model are those of [Li et al.
# (2016)](https://arxiv.org/abs/1512.07662), the paper behind the sampler `MSGNHT`. The
# page is for users of PyMC who want to see real data, all checks, and predictions. It
# takes two minutes.

# %%
import time

from multiprocessing import get_all_start_methods

import arviz as az
import census_data as data
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_sgmcmc as sg

X_train, X_test = data.features("train"), data.features("test")
y_train, y_test = data.rich("train"), data.rich("test")

# %% [markdown]
# ## Model
#
# Each of 14 attributes of a person is divided into levels, and each level is one
# feature. The model is plain PyMC. The prior of each coefficient is a standard normal
# distribution, because a single level seldom changes the odds by more than a factor of
# ten. (The paper's prior is wider. It leaves the coefficients of rare levels
# undetermined and changes next to nothing in the predictions.)

# %%
with pm.Model(coords={"feature": data.FEATURES}) as model:
    beta = pm.Normal("beta", 0, 1, dims="feature")
    pm.Bernoulli("rich", logit_p=X_train.astype(float) @ beta, observed=y_train)

# %% [markdown]
# ## Sampling
#
# Nothing has to be tuned by hand. The step method finds that the likelihood is a sum
# over people, and chooses the size of its batches. Before its first draw each chain
# finds the centre and the shape of the posterior, measures the noise of its gradients,
# chooses a step size and checks it. This is needed here, because the posterior is
# hundreds of times wider in some directions than in others. (If you add a constant to
# all coefficients of one attribute and subtract it from those of another, no prediction
# changes. Only the prior limits these directions.)
#
# `CoRVSGLD` is the sampler for most models. `MSGNHT` works differently. We use both to
# see whether they agree.

# %%
# Without fork, a program needs `if __name__ == "__main__":` to start processes
fork = "fork" in get_all_start_methods()
options = {"cores": 2, "mp_ctx": "fork"} if fork else {"cores": 1}
draws, seconds = {}, {}
for name, method in {"CoRVSGLD": sg.CoRVSGLD, "MSGNHT": sg.MSGNHT}.items():
    start = time.perf_counter()
    with model:
        draws[name] = pm.sample(
            chains=2,
            step=method(),
            random_seed=1,
            progressbar=False,
            **options,
        )
    seconds[name] = time.perf_counter() - start

# %% [markdown]
# Each result is the `DataTree` that `pm.sample` always returns. Single coefficients
# depend on the prior (see above). So we look at *effects*: what a level adds to the
# log-odds, compared with the average person.

# %%
share = X_train.mean(axis=0) * (data.ATTRIBUTE[:, None] == data.ATTRIBUTE)
share /= share.sum(axis=1, keepdims=True)
share = xr.DataArray(share, dims=("feature", "other"))

for dt in draws.values():
    beta = dt.posterior["beta"]
    others = beta.rename(feature="other").drop_vars("other")
    effect = beta - xr.dot(share, others, dim="other")
    dt["posterior/effect"] = effect.transpose("chain", "draw", "feature")

# %% [markdown]
# ## Did the chains mix?
#
# The usual diagnostics work.

# %%
dt = draws["CoRVSGLD"]
some = ["age: lowest fifth", "hours a week: most", "marital status: married"]
which = {"var_names": "effect", "coords": {"feature": some}}
size = {"figsize": (11, 7), "layout": "constrained"}
traces = az.plot_trace_dist(dt, **which, compact=False, figure_kwargs=size)

# %%
ranks = az.plot_rank(dt, **which, figure_kwargs={"figsize": (11, 3.5)})

# %% [markdown]
# The table has R-hat and effective sample sizes, the worst over the 123 effects. **They
# do not see bias.** R-hat tells whether the chains agree with each other, and chains
# that all sample the same wrong distribution agree perfectly. If SG-MCMC is wrong, it
# is wrong in this way, because its gradients are noisy and its step size is not zero.
# Two statistics show the bias. `config_temperature` is 1 on average if the draws have
# the right spread. `noise_ratio` is the share that gradient noise adds to their
# variance (for `MSGNHT` to its thermostat, which absorbs it). `batches` is the number
# of batches that were averaged for one update. If something is off, a warning after
# sampling says so.

# %%
rows = {}
for name, result in draws.items():
    stats = result.sample_stats.mean()
    tail = az.ess(result, var_names="effect", method="tail")
    rows[name] = {
        "R-hat": az.rhat(result, var_names="effect")["effect"].max().item(),
        "ESS bulk": az.ess(result, var_names="effect")["effect"].min().item(),
        "ESS tail": tail["effect"].min().item(),
        "seconds": seconds[name],
        "temperature": stats["config_temperature"].item(),
        "noise ratio": stats["noise_ratio"].item(),
        "batches": stats["batches"].item(),
    }
digits = {"ESS bulk": 0, "ESS tail": 0, "seconds": 0}
digits |= {"R-hat": 3, "temperature": 3, "noise ratio": 3}
pd.DataFrame(rows).T.round(digits)

# %% [markdown]
# ## What goes with a high income
#
# The table has the largest of the effects that are clearly not zero, with medians and
# 89 % intervals. They are associations in the data of 1994, nothing more.

# %%
quantiles = dt.posterior["effect"].quantile([0.25, 0.5, 0.75], ("chain", "draw"))
low, median, high = quantiles.values
clear = np.abs(median) > 5 * (high - low)
largest = np.argsort(-np.where(clear, np.abs(median), 0))[:16]
largest = [data.FEATURES[i] for i in sorted(largest, key=lambda i: -median[i])]
which = {"var_names": "effect", "coords": {"feature": largest}}
summary = az.summary(dt, **which, kind="all_median")
summary

# %% [markdown]
# The figure shows both samplers.

# %%
forest = az.plot_forest(
    draws,
    **which,
    combined=True,
    point_estimate="median",
    ci_kind="eti",
    labels=["feature"],
    shade_label="feature",
    color=["#0072b2", "#e69f00"],
    alpha=[0, 0.08],
    figure_kwargs={"figsize": (10, 7), "width_ratios": [1, 2]},
    visuals={"labels": {"horizontal_align": "right"}, "point_estimate": {"size": 18}},
)
figure = forest.viz["figure"].item()
names_axis, axis = figure.axes
names_axis.set_xlim(-0.1, 0.005)
names_axis.set_axis_off()
axis.axvline(0, color="0.6", linewidth=1, zorder=0)
axis.set_xlabel("effect on the log-odds, compared with the average person")
figure.suptitle("What goes with an income above 50,000 dollars?", fontsize=15, y=0.94)
forest.add_legend(
    "model",
    title="",
    loc="lower right",
    bbox_to_anchor=(1, 0.05),
    bbox_transform=axis.transAxes,
)
figure.savefig("census.png", dpi=150, bbox_inches="tight")

# %% [markdown]
# ## Predictions
#
# The predictive probability for a person of the test set is the mean of the
# probabilities over the draws.

# %%
beta = dt.posterior["beta"].values.reshape(-1, len(data.FEATURES))[::2]
probability = (1 / (1 + np.exp(-(X_test @ beta.T)))).mean(axis=1)
accuracy = np.mean((probability > 0.5) == y_test)

print(summary.to_string())
print(
    f"Test accuracy {accuracy:.2%} (the paper: 84.95%). Picture: notebooks/census.png"
)
