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
# A stochastic-gradient sampler can be wrong while every familiar instrument says that
# all is well. Here is such a run, and five ways to see through it: the warning after
# sampling, and the four functions of `sg.diagnostics`. For everybody who is going to
# believe a result. It takes a minute.

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
# A linear regression with 10,000 rows and noise of known sd. Its posterior is a normal
# distribution that linear algebra gives exactly. Every update looks at 100 rows.

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
# update. (The last three arguments switch off what the package would do about it.)

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
# They are, of the wrong distribution:

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
# It was printed above, after sampling. The *configurational temperature* is the mean of
# position times gradient. It is 1 for a chain that samples the posterior, whatever the
# posterior is, and larger where the draws are too wide. Gradient noise averages out of
# it. `sample_stats` has it for each draw.

# %%
print(f"temperature {dt.sample_stats['config_temperature'].mean():.2f}")
print(f"widening by gradient noise {dt.sample_stats['noise_ratio'].mean():.2f}")

# %% [markdown]
# Both say that the variances are about three times as large as they should be. This
# warning is free and comes with every run. What follows costs gradients and needs to be
# asked for.
#
# ## 2. Kernel Stein discrepancy
#
# `ksd` compares the draws with the model. It needs only the gradient of the log density
# on all the data. Beside it stands what as many exact and independent draws would have.
# For comparison, the same model is sampled with the default settings, which measure the
# noise and use control variates.

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
# `bias_report` runs the sampler and then runs it again from where it stands, with half
# the step size and twice the updates. What depends on the step size is bias. The report
# says how wrong each mean and each sd is, in the variables' own space, and needs no
# gradient of the full data.

# %%
with model:
    report = sg.diagnostics.bias_report(sg.SGLD, draws=500, random_seed=5, **naive)

columns = ["estimate", "half", "bias", "se", "z", "flagged"]
report[columns].sel(statistic="sd").to_dataframe()[columns].round(4)

# %%
figure = sg.diagnostics.plot_bias(report)

# %% [markdown]
# Every sd is flagged. (The estimate of the bias is the first term of a series, and here
# it is still too small: so far from the limit the sds do not depend on the step size
# linearly.) The default settings, by the same test:

# %%
with model:
    report = sg.diagnostics.bias_report(sg.CoRVSGLD, draws=500, random_seed=4)

print(int(report["flagged"].sum()), "flagged")
report[columns].sel(statistic="sd").to_dataframe()[columns].round(4)

# %% [markdown]
# ## 4. Where it comes from
#
# `gradient_noise` measures the noise variance σ² itself, for each variable in units of
# its posterior sd: of one batch as it is, and with control variates. In Langevin
# methods with step size h the noise widens the variances by the share hσ²/2. Here σ² is
# about N/B = 100, and the step size 4e-6 in the same units is h = 0.04, which explains
# the factor of three.

# %%
noise = sg.diagnostics.gradient_noise(model, default, random_seed=6)
noise["beta"].to_pandas()

# %% [markdown]
# So either dozens of batches have to be averaged for each update, or control variates
# have to be used. With these one batch is enough, which `CoRVSGLD()` found out by
# itself:

# %%
suggested = ["largest_variance", "suggested_batches", "suggested_batch_size"]
noise[suggested].to_dataframe()

# %% [markdown]
# ## 5. Making the best of it
#
# Sometimes a run cannot be repeated. `stein_thinning` picks the draws that together
# represent the posterior best, and so corrects what can be corrected: all draws
# together were too wide, the chosen ones are not.

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
# A mode that no chain has found. All of these look at the posterior where the draws
# are. R-hat over chains with different starts is the one that has a chance there, so
# keep looking at it, too.
