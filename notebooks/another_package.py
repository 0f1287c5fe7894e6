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
# [Bambi](https://bambinos.github.io/bambi/) writes PyMC models from formulas, of arrays
# without dims or `pm.Minibatch`. They are sampled as they are: the step method finds
# the rows by itself and draws batches of them where that pays. Here the formula is one
# of who earns more than 50,000 dollars a year, by the 48,842 people of a census (the
# data of the [census example](census)), with an effect for each of 14 jobs. For users
# of Bambi. It takes two minutes.

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
# `build` makes the PyMC model, in which the step is made; `fit` hands it to
# `pm.sample`. Nothing else is written for it. One line in the log says that batches are
# drawn.

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
# ## What Bambi makes of the result
#
# The result is the `DataTree` that Bambi always returns, and its predictions and plots
# take it.

# %%
bmb.interpret.plot_predictions(model, dt, ["hours", "sex"])

# %%
bmb.interpret.comparisons(model, dt, "sex", average_by="hours").summary

# %% [markdown]
# ## Beside NUTS
#
# NUTS, by PyMC itself, gets every tenth person only: the cost of a draw grows with the
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
