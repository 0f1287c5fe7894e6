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
# # Get started in five minutes
#
# This page samples a first model, reads its log and its summary, and checks the result.
# It is for users of PyMC who have too many rows for NUTS. It takes five minutes,
# installation included:
#
# ```
# pip install "pymc-sgmcmc[jax]"
# ```
#
# The data are simulated: 100,000 rows with three covariates.

# %%
import arviz as az
import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

rng = np.random.default_rng(1)
X = rng.normal(size=(100_000, 3))
y = 0.5 + X @ [1.0, 2.0, 3.0] + rng.normal(size=100_000)

# %% [markdown]
# ## The model, and one argument more
#
# The model is the same as for NUTS. Only `step=` is new. (On Windows, on macOS with
# an Intel processor and on Linux from Python 3.14 on, a script needs
# `if __name__ == "__main__":`. A notebook does not.)

# %%
with pm.Model(coords={"covariate": ["a", "b", "c"]}) as model:
    intercept = pm.Normal("intercept", 0, 10)
    beta = pm.Normal("beta", 0, 10, dims="covariate")
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", intercept + X @ beta, sigma, observed=y)
    dt = pm.sample(step=sg.CoRVSGLD(), random_seed=1, progressbar=False)

# %% [markdown]
# ## What the log says
#
# - **An update takes batches**: the step method found that the log density is a sum
#   over the rows of `y`, and that a pass over all rows costs much more than a batch.
#   With few rows, or with rows that depend on each other, each update would use all
#   rows.
# - **Tuned**: before its first draw each chain found the centre and the shape of the
#   posterior, measured the noise of its gradients, chose a step size and checked it.
# - A **warning** after sampling would say what looks wrong. There is none here.
#
# [What a run tells you](../statistics) explains every line.
#
# ## The summary and two plots
#
# The result is the `DataTree` that `pm.sample` always returns.

# %%
az.summary(dt)

# %%
traces = az.plot_trace_dist(
    dt, figure_kwargs={"figsize": (11, 8), "layout": "constrained"}
)

# %%
forest = az.plot_forest(dt, var_names=["intercept", "beta"], combined=True)

# %% [markdown]
# ## Is it right?
#
# The posterior of this model is nearly that of least squares. The means of the draws
# should be within a tenth of an sd of the exact ones, and the sds within 10 %:

# %%
design = np.column_stack([np.ones(len(X)), X])
exact = np.linalg.lstsq(design, y)[0]
# Of noise with an sd of 1
sd = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))

beta = dt.posterior["beta"].values.reshape(-1, 3)
draws = np.column_stack([dt.posterior["intercept"].values.ravel(), beta])
print("errors of the means, in sds:", np.round((draws.mean(axis=0) - exact) / sd, 2))
print("sds over the exact ones:    ", np.round(draws.std(axis=0) / sd, 2))

# %% [markdown]
# For most models nothing exact is known. Then read the warnings, compare with NUTS on a
# small part of the rows, and run [`sg.diagnostics.bias_report`](diagnostics), which
# samples the model anew and goes on with half the step size. With few rows pass it the
# `batch_size=` that the log names, because few rows are otherwise sampled without
# batches.
#
# ## Where to go next
#
# - [NUTS, ADVI or SG-MCMC?](choosing) compares the three methods at four sizes of the
#   data.
# - [Examples](../examples), such as [incomes of a census](census), show complete
#   analyses.
# - [Choose a sampler](../choose_a_sampler) explains the methods and their tuning.
# - [Gotchas](../gotchas) lists what R-hat does not see, and other surprises.
