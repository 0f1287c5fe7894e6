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
# # A model that another package built
#
# [Bambi](https://bambinos.github.io/bambi/) builds PyMC models from formulas. Their
# arrays have neither dims nor `pm.Minibatch`. This package samples them without
# changes: the step method finds the rows by itself and uses batches if that pays. The
# formula here predicts who earns more than 50,000 dollars a year, with an effect for
# each of 14 jobs. The data are the 48,842 people of a census (see the [census
# example](census)). The page is for users of Bambi. It takes a minute.

# %%
import time
import warnings

import arviz as az
import bambi as bmb
import census_data as data
import numpy as np
import pandas as pd

import pymc_sgmcmc as sg

warnings.filterwarnings("ignore", category=bmb.PlottingFutureWarning)

# %% [markdown]
# ## Data
#
# Bambi takes a data frame.

# %%
names = {
    "years of education": "schooling",
    "marital status": "marital",
    "job": "job",
    "sex": "sex",
    "hours a week": "hours",
}
people = pd.concat([data.people("train"), data.people("test")], ignore_index=True)
people = people.rename(columns=names)[[*names.values()]].astype(str)
people["rich"] = np.concatenate([data.rich("train"), data.rich("test")])
people.head()

# %% [markdown]
# ## Sample
#
# `build` makes the PyMC model. We make the step method in this model, and `fit` passes
# it on to `pm.sample`. Nothing else is needed. One line in the log says that the step
# method uses batches.

# %%
formula = "rich ~ schooling + marital + sex + hours + (1|job)"
model = bmb.Model(formula, people, family="bernoulli")
model.build()

start = time.perf_counter()
with model.backend.model:
    step = sg.CoRVSGLD()
dt = model.fit(
    draws=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False
)
seconds = {"CoRVSGLD, all people": time.perf_counter() - start}

# %%
az.summary(dt, var_names=["Intercept", "sex", "hours", "1|job_sigma"])

# %% [markdown]
# ## Bambi's plots and predictions
#
# The result is the `DataTree` that Bambi always returns. Bambi's predictions and plots
# work with it.

# %%
bmb.interpret.plot_predictions(model, dt, ["hours", "sex"])

# %%
bmb.interpret.comparisons(model, dt, "sex", average_by="hours").summary

# %% [markdown]
# ## Compared with NUTS
#
# PyMC's NUTS gets only every tenth person, because the cost of its draws grows with the
# rows.

# %%
tenth = bmb.Model(formula, people[::10].reset_index(drop=True), family="bernoulli")
start = time.perf_counter()
nuts = tenth.fit(
    draws=500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False
)
seconds["NUTS, a tenth of them"] = time.perf_counter() - start

# %%
rows = {}
for name, result in zip(seconds, (dt, nuts), strict=True):
    least = min(
        float(x.min())
        for x in az.ess(result["posterior"].to_dataset()).data_vars.values()
    )
    rows[name] = {
        "seconds": seconds[name],
        "least ESS": least,
        "ESS a second": least / seconds[name],
    }
pd.DataFrame(rows).T.round(2)
