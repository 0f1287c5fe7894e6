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
# # Is it right?
#
# A stochastic-gradient sampler can be wrong while every familiar diagnostic looks good.
# This page shows such a run, and five ways to notice the error: the warning after
# sampling, and four functions of `sg.diagnostics`. It is for everybody who is going to
# rely on a result. It takes a minute.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from scipy.stats import norm

import pymc_sgmcmc as sg

# %% [markdown]
# ## A posterior that is known
#
# The model is a linear regression with 10,000 rows and noise of known sd. Its posterior
# is a normal distribution that linear algebra gives exactly. Every update uses 100
# rows.

# %%
N, B = 10_000, 100
features = ["intercept", "age", "height"]
rng = np.random.default_rng(0)
X = np.column_stack([np.ones(N), rng.normal(size=(N, 2))])
Y = X @ [1.0, 2.0, -1.0] + rng.normal(size=N)

with pm.Model(coords={"feature": features}) as model:
    x, y = pm.Minibatch(X, Y, batch_size=B)
    beta = pm.Normal("beta", 0, 10, dims="feature")
    pm.Normal("y", x @ beta, 1, observed=y, total_size=N)

precision = X.T @ X + np.eye(3) / 100
exact_mean = np.linalg.solve(precision, X.T @ Y)
exact_sd = np.sqrt(np.diag(np.linalg.inv(precision)))

# %% [markdown]
# ## A run that looks perfect
#
# This is textbook SGLD: a fixed step size that looks tiny, and one batch for each
# update. (The last three arguments switch off what the package would do against the
# noise.)

# %%
naive = {
    "step_size": 4e-6,
    "thin": 100,
    "scale": None,
    "gradient": "plain",
    "batches": 1,
}
# One process, because the diagnostics below run in it, too
options = {"chains": 4, "cores": 1, "progressbar": False}
with model:
    dt = pm.sample(
        draws=1000, tune=100, step=sg.SGLD(**naive), random_seed=3, **options
    )

az.summary(dt, kind="diagnostics")

# %% [markdown]
# R-hat is 1.00, and thousands of effective draws say that the estimates are precise.
# They are precise, but they describe the wrong distribution:

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
for axis, name, mean, sd in zip(axes, features, exact_mean, exact_sd, strict=True):
    draws = dt.posterior["beta"].sel(feature=name).values.ravel()
    grid = np.linspace(mean - 6 * sd, mean + 6 * sd, 200)
    axis.hist(
        draws,
        bins=60,
        density=True,
        color="#e69f00",
        alpha=0.6,
        label="SGLD, R-hat 1.00",
    )
    axis.plot(grid, norm.pdf(grid, mean, sd), color="black", label="exact")
    axis.set_title(name)
    axis.set_yticks([])
axes[0].legend(loc="upper left", fontsize=8)
spread = (dt.posterior["beta"].std(("chain", "draw")) / exact_sd).values
print("sds, in units of the exact ones:", spread.round(2))

# %% [markdown]
# The gradient noise widens the draws of all chains alike. R-hat compares chains with
# each other, and they agree.
#
# ## 1. The warning
#
# The warning was printed above, after sampling. The *configurational temperature* is
# the mean of position times gradient. It is 1 for a chain that samples the posterior,
# whatever the posterior is, and larger if the draws are too wide. Gradient noise
# averages out of it. `sample_stats` has its value for each draw.

# %%
print(f"temperature {dt.sample_stats['config_temperature'].mean():.2f}")
print(f"widening by gradient noise {dt.sample_stats['noise_ratio'].mean():.2f}")

# %% [markdown]
# Both numbers say that the variances are about three times as large as they should be.
# This warning is free and comes with every run. The following checks cost gradients, so
# you have to ask for them.
#
# ## 2. Kernel Stein discrepancy
#
# `ksd` compares the draws with the model. It needs only the gradient of the log density
# on all the data. The second column is the value that as many exact and independent
# draws would have. For comparison we sample the same model with the default settings,
# which measure the noise and use control variates.

# %%
with model:
    default = pm.sample(
        draws=1000, tune=100, step=sg.CoRVSGLD(), random_seed=2, **options
    )
    found = {
        name: sg.diagnostics.ksd(result, reference=default)
        for name, result in (("naive SGLD", dt), ("CoRVSGLD()", default))
    }

pd.DataFrame(
    {
        name: {
            "KSD": f["ksd_all"].item(),
            "expected of exact draws": f["expected_all"].item(),
        }
        for name, f in found.items()
    }
).T.round(3)

# %% [markdown]
# ## 3. Half the step size
#
# `bias_report` runs the sampler, and then runs it again from its last position with
# half the step size and twice the updates. A difference between the two runs is bias.
# The report says how wrong each mean and each sd is, in the variables' own space. It
# needs no gradient of the full data.

# %%
with model:
    report = sg.diagnostics.bias_report(sg.SGLD, draws=500, random_seed=5, **naive)

columns = ["estimate", "half", "bias", "se", "z", "flagged"]
report[columns].sel(statistic="sd").to_dataframe()[columns].round(4)

# %%
figure = sg.diagnostics.plot_bias(report)

# %% [markdown]
# Every sd is flagged. (The estimate of the bias is the first term of a series. Here it
# is too small, because at such a large step size the sds do not depend on it linearly.)
# Now the same test with the default settings:

# %%
with model:
    report = sg.diagnostics.bias_report(sg.CoRVSGLD, draws=500, random_seed=4)

print(int(report["flagged"].sum()), "flagged")
report[columns].sel(statistic="sd").to_dataframe()[columns].round(4)

# %% [markdown]
# ## 4. Where it comes from
#
# `gradient_noise` measures the noise variance σ² itself, for one plain batch and with
# control variates. Its unit is the posterior sd of each variable. In Langevin methods
# with step size h the noise widens the variances by the share hσ²/2. Here σ² is about
# N/B = 100, and the step size 4e-6 in the same units is h = 0.04. This explains the
# factor of three.

# %%
noise = sg.diagnostics.gradient_noise(model, default, random_seed=6)
noise["beta"].to_pandas()

# %% [markdown]
# So an update has to average dozens of batches, or to use control variates. With
# control variates one batch is enough. `CoRVSGLD()` found this out by itself:

# %%
suggested = ["largest_variance", "suggested_batches", "suggested_batch_size"]
noise[suggested].to_dataframe()

# %% [markdown]
# ## 5. Making the best of it
#
# Sometimes a run cannot be repeated. `stein_thinning` selects the draws that together
# represent the posterior best. This corrects what can be corrected: all draws together
# were too wide, but the selected ones are not.

# %%
with model:
    dt = sg.diagnostics.stein_thinning(dt, 100)
thinned = dt["posterior_thinned"].to_dataset()
every_40th = dt["posterior"].to_dataset().isel(draw=slice(None, None, 40))

rows = {}
for name, chosen in (("every 40th", every_40th), ("Stein thinning", thinned)):
    discrepancy = sg.diagnostics.ksd(chosen, model, reference=default)["ksd_all"].item()
    widths = chosen["beta"].std(("chain", "draw")) / exact_sd
    rows[name] = {"KSD": discrepancy, **widths.to_series()}
pd.DataFrame(rows).T.round(2).rename_axis("sds over the exact ones", axis="columns")

# %% [markdown]
# ## What none of them sees
#
# None of these checks sees a mode that no chain has found. All of them look at the
# posterior where the draws are. R-hat over chains with different starts may notice such
# a mode, so keep looking at R-hat, too.
