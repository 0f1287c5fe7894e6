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
# [Bambi](https://bambinos.github.io/bambi/) writes PyMC models from formulas, of arrays without
# dims or `pm.Minibatch`. They are sampled as they are: the step method finds the rows by itself and
# draws batches of them where that pays. Here the formula is one of who earns more than 50,000
# dollars a year, by the 48,842 people of a census (the data of the
# [census example](census)), with an effect for each of 14 jobs.

# %%
import time
import warnings

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd

import pymc_sgmcmc as sg

warnings.filterwarnings("ignore", category=bmb.PlottingFutureWarning)

# %% [markdown]
# ## Data
#
# The file has a column for each level of an attribute. Bambi takes a data frame of the levels.

# %%
attributes = {
    "schooling": (34, ["1-8", "9", "10", "11-12", "13-16"]),
    "marital": (
        39,
        "married|divorced|never married|separated|widowed|spouse absent|armed forces".split("|"),
    ),
    "job": (
        46,
        (
            "tech support|craft, repair|other service|sales|manager|professional|handler, cleaner|"
            "machine operator|clerical|farming, fishing|transport|house servant|protection|military"
        ).split("|"),
    ),
    "sex": (71, ["female", "male"]),
    "hours": (77, ["fewest", "below 40", "about 40", "above 40", "most"]),
}
file = np.load("../tests/data/a9a.npz")
X = np.unpackbits(np.concatenate([file["X_train"], file["X_test"]]), axis=1)
people = pd.DataFrame({"rich": np.concatenate([file["y_train"], file["y_test"]]).astype(int)})
for name, (first, levels) in attributes.items():
    columns = X[:, first : first + len(levels)]
    people[name] = np.where(
        columns.any(axis=1), np.array(levels)[columns.argmax(axis=1)], "unknown"
    )
people.head()

# %% [markdown]
# ## Sample
#
# `build` makes the PyMC model, in which the step is made; `fit` hands it to `pm.sample`. Nothing
# else is written for it. One line in the log says that batches are drawn.

# %%
formula = "rich ~ schooling + marital + sex + hours + (1|job)"
model = bmb.Model(formula, people, family="bernoulli")
model.build()

start = time.perf_counter()
with model.backend.model:
    step = sg.CoRVSGLD()
dt = model.fit(draws=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False)
seconds = {"CoRVSGLD, all people": time.perf_counter() - start}

# %%
az.summary(dt, var_names=["Intercept", "sex", "hours", "1|job_sigma"])

# %% [markdown]
# ## What Bambi makes of the result
#
# The result is the `DataTree` that Bambi always returns, and its predictions and plots take it.

# %%
bmb.interpret.plot_predictions(model, dt, ["hours", "sex"])

# %%
bmb.interpret.comparisons(model, dt, "sex", average_by="hours").summary

# %% [markdown]
# ## Beside NUTS
#
# NUTS, by PyMC itself, gets every tenth person only: the cost of a draw grows with the rows.

# %%
tenth = bmb.Model(formula, people[::10].reset_index(drop=True), family="bernoulli")
start = time.perf_counter()
nuts = tenth.fit(draws=500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
seconds["NUTS, a tenth of them"] = time.perf_counter() - start

# %%
rows = {}
for name, result in zip(seconds, (dt, nuts), strict=True):
    least = min(float(x.min()) for x in az.ess(result["posterior"].to_dataset()).data_vars.values())
    rows[name] = {
        "seconds": seconds[name],
        "least ESS": least,
        "ESS a second": least / seconds[name],
    }
pd.DataFrame(rows).T.round(2)
