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
# # A hierarchy with thousands of groups
#
# How likely is somebody with a certain job, schooling, age, sex and marital status to
# earn more than 50,000 dollars a year? The records of [a census](census) fall into
# thousands of such cells. Most cells hold a handful of people, a few hold hundreds, and
# many hold nobody. This is what hierarchical models are for: a cell with many people
# speaks for itself, and a cell with few people borrows from the others.
#
# The model is plain PyMC. Every batch has 500 people, from at most 500 of the cells.
# Nothing has to be tuned. At the end NUTS samples the same posterior and ADVI fits it,
# for comparison. The page is for users of PyMC with hierarchies. It takes five minutes.

# %%
import logging
import os
import time

from multiprocessing import get_all_start_methods

import arviz as az
import census_data as data
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
# The tests run a small version, of a hundred groups
SMALL = bool(os.environ.get("SMALL"))

# %% [markdown]
# ## Data
#
# Each attribute of a person has levels, and a cell is a combination of them. People
# without a stated job get a level of their own.

# %%
names = ["age", "education", "marital status", "job", "sex"]
if SMALL:
    names = ["education", "marital status"]
parts = {part: data.people(part)[names] for part in ("train", "test")}
rich = {part: data.rich(part) for part in parts}

# Cells of both parts: nobody of the training set may belong to a cell of the tests
levels = pd.concat(parts).apply(lambda column: column.cat.codes).to_numpy()
cells, cell_of = np.unique(levels, axis=0, return_inverse=True)
trained = len(rich["train"])
cell = dict(zip(parts, np.split(cell_of.astype("int32"), [trained]), strict=True))
size = np.bincount(cell["train"], minlength=len(cells))
few = np.mean(size[size > 0] <= 3)
print(f"{trained:,} people, {len(cells):,} cells, {np.sum(size == 0):,} of them empty,")
print(f"{few:.0%} of the others with at most three, the largest with {size.max():,}")

# %% [markdown]
# ## Model
#
# The effect of a cell varies about the sum of the contributions of its attributes, with
# a learned standard deviation. You may write group effects centred or non-centred. Here
# they are centred, and [the sampler chooses its own coordinates for each
# group](../hierarchies).
#
# We use the function twice: with `pm.Minibatch` for sampling, and with all rows for
# predictions, where `pm.set_data` replaces the people by new ones.

# %%
coords = {"cell": np.arange(len(cells))}
for name in names:
    coords[f"{name}: levels"] = parts["train"][name].cat.categories


def model_of(cell, rich, batch_size=None):
    """Return the model of people in cells."""
    with pm.Model(coords=coords) as model:
        cell_data, rich_data = pm.Data("cell_data", cell), pm.Data("rich_data", rich)
        rows = cell_data, rich_data
        if batch_size is not None:
            rows = pm.Minibatch(*rows, batch_size=batch_size)
        which, seen = rows
        centre = pm.Normal("intercept", -1, 2)
        for k, name in enumerate(names):
            centre = centre + pm.Normal(name, 0, 1, dims=f"{name}: levels")[cells[:, k]]
        sd = pm.HalfNormal("sd", 1)
        effect = pm.Normal("effect", centre, sd, dims="cell")
        if batch_size is None:
            pm.Deterministic("chance", pm.math.sigmoid(effect[which]))
        total_size = None if batch_size is None else len(rich)
        pm.Bernoulli(
            "rich", logit_p=effect[which], observed=seen, total_size=total_size
        )
    return model


# %% [markdown]
# ## Sampling

# %%
# Where processes are not forked, a program needs `if __name__ == "__main__":` to start
# some
fork = "fork" in get_all_start_methods()
options = {"cores": 2, "mp_ctx": "fork"} if fork else {"cores": 1}
options |= {"chains": 2, "random_seed": 1, "progressbar": False}
model = model_of(cell["train"], rich["train"], batch_size=500)
start = time.perf_counter()
with model:
    dt = pm.sample(step=sg.MSGNHT(), **options)
seconds = {"MSGNHT": time.perf_counter() - start}

# %% [markdown]
# The chains agree on the scale of the hierarchy and on every cell:

# %%
few = {"sd": dt.posterior["sd"], "worst of all cells": dt.posterior["effect"]}
checks = pd.DataFrame(
    {
        "R-hat": {name: az.rhat(x).max().item() for name, x in few.items()},
        "ESS": {name: az.ess(x).min().item() for name, x in few.items()},
    }
)
checks.round(3)

# %% [markdown]
# ## What the hierarchy does
#
# Each point is a cell. Its horizontal position is the share of rich people in the data.
# Its vertical position is the chance that the model estimates. Both are the same on the
# diagonal, where the large cells lie. A cell of one or two people has a share of 0, ½
# or 1, which nobody would believe. For such a cell the model relies on job, schooling,
# age, sex and marital status.

# %%
chance = 1 / (1 + np.exp(-dt.posterior["effect"].values))
mean = chance.mean(axis=(0, 1))
share = np.bincount(cell["train"], rich["train"], len(cells)) / np.maximum(size, 1)
filled = size > 0

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
left.plot([0, 1], [0, 1], color="0.7", zorder=0)
look = {"cmap": "viridis_r", "alpha": 0.7, "linewidth": 0}
look |= {"s": 4 + 2 * np.sqrt(size[filled]), "c": np.log10(size[filled])}
points = left.scatter(share[filled], mean[filled], **look)
bar = figure.colorbar(points, ax=left, ticks=[0, 1, 2])
bar.set_ticklabels(["1", "10", "100"])
bar.set_label("people in the cell")
left.set(xlabel="share in the data", ylabel="posterior mean", title="Shrinkage")
# A cell's deviation from its attributes, in sds of all cells: what data tell of it
centre = dt.posterior["intercept"].values[..., None] + sum(
    dt.posterior[name].values[..., cells[:, k]] for k, name in enumerate(names)
)
width = (dt.posterior["effect"].values - centre).std(axis=(0, 1))
right.set(
    xscale="log",
    xlabel="people in the cell (nobody: ½)",
    ylabel="sd of its deviation",
    title="What is left unknown (grey: sd of all cells)",
)
right.axhline(dt.posterior["sd"].mean().item(), color="0.7", zorder=0)
points = right.plot(np.maximum(size, 0.5), width, ".", markersize=4, alpha=0.4)

# %% [markdown]
# ## Against NUTS
#
# For this model we can check the answer. All people of a cell are alike to the model,
# so the counts of each cell say as much as the rows, and NUTS needs only the counts.
# This is special. If each person had one more number, such as hours of work, NUTS would
# need all rows for each of its gradients.

# %%
with pm.Model(coords=coords) as counts:
    centre = pm.Normal("intercept", -1, 2)
    for k, name in enumerate(names):
        centre = centre + pm.Normal(name, 0, 1, dims=f"{name}: levels")[cells[:, k]]
    sd = pm.HalfNormal("sd", 1)
    # NUTS needs the non-centred form: cells of nobody make a funnel
    z = pm.Normal("z", 0, 1, dims="cell")
    effect = pm.Deterministic("effect", centre + sd * z, dims="cell")
    number = np.bincount(cell["train"], rich["train"], len(cells)).astype(int)
    pm.Binomial("rich", n=size, logit_p=effect, observed=number)
    start = time.perf_counter()
    nuts = pm.sample(
        draws=300 if SMALL else 400,
        tune=300 if SMALL else 400,
        nuts_sampler="pymc",
        compute_convergence_checks=False,
        **options,
    )
    seconds["NUTS, counts"] = time.perf_counter() - start

# %% [markdown]
# ## Against ADVI
#
# Mean-field ADVI uses the same minibatches, and Adam. It fits independent normal
# distributions, which cannot describe effects that are correlated with their centre and
# their scale. In the table its sd of cells is nearly twice that of NUTS, so that its
# effects are too wide, and its own ± of that sd and of the intercept is far too narrow.
# MSGNHT's means agree with those of NUTS. Its ± of the sd of cells is a fifth larger
# than that of NUTS's 800 draws.

# %%
start = time.perf_counter()
with model:
    fit = pm.fit(
        5_000 if SMALL else 30_000,
        obj_optimizer=pm.adam(learning_rate=0.01),
        random_seed=1,
        progressbar=False,
    )
    advi = fit.sample(1000, random_seed=1)
seconds["ADVI"] = time.perf_counter() - start

results = {"MSGNHT": dt, "NUTS, counts": nuts, "ADVI": advi}
exact = nuts.posterior["effect"]
rows = {}
for name, result in results.items():
    effect = result.posterior["effect"]
    ratio = effect.std(("chain", "draw")) / exact.std(("chain", "draw"))
    sd = result.posterior["sd"]
    rows[name] = {
        "sd of cells": f"{sd.mean().item():.3f} ± {sd.std().item():.3f}",
        "sds of effects, NUTS' being 1": f"{ratio.mean().item():.2f}",
        "intercept": f"{result.posterior['intercept'].mean().item():.2f} "
        f"± {result.posterior['intercept'].std().item():.2f}",
        "seconds": f"{seconds[name]:.0f}",
    }
comparison = pd.DataFrame(rows).T
comparison

# %% [markdown]
# ## Predictions for new people
#
# The test set has 16,281 people. Some of them are in cells without anybody from the
# training set. We predict in PyMC's usual way: take the model of all rows, set new
# data, call `pm.sample_posterior_predictive`. PyMC then computes `chance` for the new
# rows from the draws of `effect`.

# %%
with model_of(cell["train"], rich["train"]):
    pm.set_data({"cell_data": cell["test"], "rich_data": rich["test"]})
    predictions = pm.sample_posterior_predictive(
        dt.sel(draw=slice(None, None, 5)),
        var_names=["chance"],
        predictions=True,
        random_seed=1,
        progressbar=False,
    )
predicted = predictions.predictions["chance"].mean(("chain", "draw")).values

y = rich["test"]
overall = rich["train"].mean()
guesses = {
    "hierarchy": predicted,
    # Laplace's rule, about the share of all
    "each cell alone": (share * size + 2 * overall)[cell["test"]]
    / (size + 2)[cell["test"]],
    "all alike": np.full(len(y), overall),
}
new = size[cell["test"]] == 0
scores = pd.DataFrame(
    {
        name: {
            "log score": np.mean(np.log(np.where(y == 1, p, 1 - p))),
            "of cells of at most 3": np.mean(
                np.log(np.where(y == 1, p, 1 - p))[size[cell["test"]] <= 3]
            ),
            "of new cells": np.mean(np.log(np.where(y == 1, p, 1 - p))[new]),
            "accuracy": np.mean((p > 0.5) == y),
        }
        for name, p in guesses.items()
    }
).T
scores.round(3)
