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
# # A double well with two integrators
#
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), section 3, figures 1 and 2: the multivariate
# thermostat on one dimension with two wells, by a symmetric splitting (mSGNHT-S, here
# `MSGNHT(integrator="ssi")`) and by Euler's rule (mSGNHT-E, `integrator="euler"`). The paper says
#
# 1. that the splitting gives the better density, with a significant gap at large step sizes;
# 2. that at step size 0.001 Euler's chain has not explored the space after $10^5$ updates, because
#    it converges more slowly than the splitting's;
# 3. that the splitting's thermostat comes nearer to its theoretical value 1, at step size 0.001 and
#    at 0.2.
#
# The setting is the paper's: the density $e^{-U}$, noise $N(0, 2Bh)$ with $B = 1$ in the gradient
# of each update, no noise added to it, $10^6$ updates for each step size $h$ from 0.001 to 0.3, the
# Kullback–Leibler divergence of the histogram of the draws from the truth. Three things are ours.
#
# - Gradient noise of that law is the same as injected noise: the gradient here is exact, and
#   `diffusion=1`. The thermostats start at 1.
# - 64 independent chains run at once, as elements of one variable, each from θ = 0. The paper has
#   one. Each chain has a divergence, as in the paper, and all of them together have one that is
#   nearly free of Monte-Carlo error.
# - Every 50th draw is kept.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from pymc.exceptions import SamplingError
from reproduction import QUIET, SMALL, Reproduction

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
reproduction = Reproduction(
    "msgnht_double_well", "Li et al. (2016)", "Figures 1 and 2: double well"
)

step_sizes = [0.001, 0.2, 0.3] if SMALL else [0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3]
integrators = {"ssi": "mSGNHT-S", "euler": "mSGNHT-E"}
colours = {"ssi": "#0072b2", "euler": "#d55e00"}
chains, updates, thin = 64, 100_000 if SMALL else 1_000_000, 50
draws = updates // thin

# %% [markdown]
# ## Truth
#
# The left well has 87 % of the mass. The histogram has 50 bins of equal width, the first and the
# last of which are open. Half a draw is added to each, so that an empty one costs a finite amount.


# %%
def potential(theta):
    return (theta + 4) * (theta + 1) * (theta - 1) * (theta - 3) / 14 + 0.5


edges = np.linspace(-4.5, 3.5, 51)
grid = np.linspace(-8, 8, 160_001)
density = np.exp(-potential(grid))
density /= density.sum() * (grid[1] - grid[0])
exact = np.histogram(grid, [-np.inf, *edges[1:-1], np.inf], weights=density)[0]
exact /= exact.sum()


def counts(theta):
    """Draws in each bin, for each chain: an array of shape (chain, bin)."""
    bins = np.searchsorted(edges[1:-1], theta)
    return np.array([np.bincount(bins[:, i], minlength=50) for i in range(theta.shape[1])])


def divergence(n):
    q = n + 0.5
    return np.sum(exact * np.log(exact / (q / q.sum(axis=-1, keepdims=True))), axis=-1)


def with_error(n):
    """Divergence of all chains together and its standard error, by leaving out each in turn."""
    each = divergence(n.sum(axis=0) - n)
    return divergence(n.sum(axis=0)), np.sqrt((len(n) - 1) * each.var())


print(f"Mass of the left well: {density[grid < 0].sum() * (grid[1] - grid[0]):.4f}")

# %% [markdown]
# ## Sampling
#
# With a large step Euler's rule diverges now and then. An unusually fast particle makes
# its thermostat so strong that one update reverses the momentum and enlarges it.
# `pm.sample` then stops with an error. The draws before the error count for Euler, and
# the chains start again from θ = 0. If ten such runs last less than a fiftieth of the
# whole run on average, we give up.


# %%
def run(integrator, h, seed):
    """Draws and mean thermostat until the chains are through or one of them explodes."""
    kept = []
    with pm.Model():
        theta = pm.Flat("theta", shape=chains, initval=np.zeros(chains))
        pm.Potential("minus_U", -potential(theta).sum())
        step = sg.MSGNHT(
            integrator=integrator, step_size=h, diffusion=1.0, thermostat_mass=1.0, thin=thin,
            scale=None, gradient="plain", batches=1,
        )  # fmt: skip
        try:
            pm.sample(
                draws=draws, tune=0, chains=1, step=step, random_seed=seed, quiet=True,
                callback=lambda trace, draw: kept.append((draw.point["theta"], draw.stats[0])),
                **QUIET,
            )  # fmt: skip
            exploded = False
        except SamplingError:
            exploded = True
    rejected = sum(stats["rejected_updates"] for _, stats in kept)
    taken = len(kept) * thin - rejected
    kept = [row for row in kept if row[1]["rejected_updates"] == 0]
    theta = np.array([theta for theta, _ in kept]).reshape(-1, chains)
    return theta, np.array([stats["thermostat"] for _, stats in kept]), taken, exploded


theta, thermostat, lives = {}, {}, {}
for i, integrator in enumerate(integrators):
    for j, h in enumerate(step_sizes):
        parts, taken, explosions = [], 0, 0
        while sum(len(part[0]) for part in parts) < draws:
            *part, some, exploded = run(integrator, h, [i, j, len(parts)])
            parts.append(part)
            taken += some
            explosions += exploded
            if explosions >= (2 if SMALL else 10) and taken / explosions < updates / 50:
                break
        theta[integrator, h] = np.concatenate([part[0] for part in parts])[:draws]
        thermostat[integrator, h] = np.concatenate([part[1] for part in parts])[:draws]
        lives[integrator, h] = (explosions, chains * taken / explosions if explosions else np.inf)
        reproduction.count(chains * taken)

# %% [markdown]
# ## Figure 1: divergence against step size
#
# Large markers are all chains together; they show the error of the integrator. Small
# markers are the mean over single chains of $10^6$ updates, such as the paper's chain.
# At small step sizes a chain covers so short a time that it visits the right well too
# few times. This causes its divergence, whatever the integrator.

# %%
pooled, single = {}, {}
print("\nstep size  integrator  all chains        a chain           explosions")
for h in step_sizes:
    for integrator, name in integrators.items():
        explosions, life = lives[integrator, h]
        if len(theta[integrator, h]) == draws:
            n = counts(theta[integrator, h])
            pooled[integrator, h] = with_error(n)
            alone = divergence(n)
            single[integrator, h] = (alone.mean(), alone.std(ddof=1) / np.sqrt(chains))
        else:
            pooled[integrator, h] = single[integrator, h] = (np.inf, 0.0)
        shown = [
            f"{kl:.5f} ± {error:.5f}" if np.isfinite(kl) else "no estimate"
            for kl, error in (pooled[integrator, h], single[integrator, h])
        ]
        every = f"one in {life:,.0f} updates" if explosions else "none"
        print(f"{h:<10} {name:11} {shown[0]:17} {shown[1]:17} {every}")

figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
for integrator, name in integrators.items():
    for found, size, label in ((pooled, 7, f"{name}, all chains"), (single, 3, f"{name}, a chain")):
        stable = [h for h in step_sizes if np.isfinite(found[integrator, h][0])]
        kl, error = np.array([found[integrator, h] for h in stable]).T
        style = "o-" if found is pooled else "o:"
        axis.errorbar(
            stable, kl, error, fmt=style, markersize=size, color=colours[integrator], label=label
        )
lost = [h for h in step_sizes if not np.isfinite(pooled["euler", h][0])]
for h in lost:
    axis.axvline(h, color=colours["euler"], linewidth=1, linestyle="--")
    axis.annotate(
        "mSGNHT-E\nexplodes", (h, 0.97), xycoords=("data", "axes fraction"), xytext=(-4, 0),
        textcoords="offset points", ha="right", va="top", fontsize=8, color=colours["euler"],
    )  # fmt: skip
axis.set(xscale="log", yscale="log", xlabel="step size h", ylabel="KL divergence from the truth")
axis.legend()

# %% [markdown]
# ## Figure 2: the first $10^5$ draws, and thermostats
#
# First and second row: one chain's histogram after $10^5$ updates. Third row: the mean of the
# thermostat since the start, over all chains.

# %%
first = min(100_000 // thin, draws)
shown = [0.001, 0.2]
figure, axes = plt.subplots(3, 2, figsize=(9, 7.5), layout="constrained")
for column, h in enumerate(shown):
    for row, (integrator, name) in enumerate(integrators.items()):
        axis = axes[row, column]
        some = theta[integrator, h][:first, 0]
        axis.hist(np.clip(some, -4.5, 3.5), edges, density=True, color=colours[integrator])
        axis.plot(grid, density, color="black", linewidth=1)
        axis.set(xlim=(-5, 4), title=f"{name}, h = {h}", xlabel="θ", ylabel="density")
        means = np.cumsum(thermostat[integrator, h][:first]) / np.arange(1, first + 1)
        axes[2, column].plot(
            thin * np.arange(1, first + 1), means, color=colours[integrator], label=name
        )
    axes[2, column].axhline(1, color="black", linewidth=1)
    axes[2, column].set(ylim=(0.8, 1.2), xlabel="update", ylabel="mean thermostat so far")
    axes[2, column].legend()
reproduction.picture(figure)

# %% [markdown]
# The standard error of a mean thermostat is that of 20 stretches of time. The share of chains that
# have been in both wells says how much of the space is explored.

# %%
heat, explored = {}, {}
for h in shown:
    for integrator, name in integrators.items():
        stretches = thermostat[integrator, h][:first].reshape(20, -1).mean(axis=1)
        heat[integrator, h] = (stretches.mean(), stretches.std(ddof=1) / np.sqrt(20))
        some = theta[integrator, h][:first]
        explored[integrator, h] = np.mean((some < -1.5).any(axis=0) & (some > 1.5).any(axis=0))
        print(
            f"h = {h}, {name}: mean thermostat {heat[integrator, h][0]:.3f} ± "
            f"{heat[integrator, h][1]:.3f}; {explored[integrator, h]:.0%} of the chains have been "
            f"in both wells after {first * thin:,} updates"
        )

# %% [markdown]
# ## Untuned
#
# Somebody who has not read the paper writes `sg.MSGNHT()`. The four chains here are
# short, so their divergence comes mostly from few visits to the right well.

# %%
with pm.Model():
    x = pm.Flat("theta", initval=0.0)
    pm.Potential("minus_U", -potential(x))
    dt = pm.sample(
        draws=500 if SMALL else 5000, chains=4, step=sg.MSGNHT(), random_seed=1,
        **QUIET,
    )  # fmt: skip
taken = int(dt.sample_stats["thin"].sum())
reproduction.count(taken)
untuned = divergence(counts(dt.posterior["theta"].values.T).sum(axis=0))
left = float((dt.posterior["theta"] < 0).mean())
print(
    f"Untuned: divergence {untuned:.4f} of {dt.posterior['theta'].size:,} draws, {taken:,} updates "
    f"after tuning, step size {float(dt.sample_stats['step_size'].mean()):.3g} in whitened "
    f"coordinates; mass of the left well {left:.3f}"
)

# %% [markdown]
# ## Verdicts
#
# At small step sizes both integrators follow the same dynamics: neither explores faster than the
# other, and what one chain shows is chance. At large ones the splitting is better by an order of
# magnitude, and at 0.3 it alone stays finite. The thermostat's value of 1 is that of a vanishing
# step size; at 0.2 the splitting's is the nearer to it.

# %%
large = [h for h in step_sizes if h >= 0.05]
small = [h for h in step_sizes if h < 0.05]


def gap(h):
    """Euler's divergence less the splitting's, and its standard error."""
    (s, error_s), (e, error_e) = pooled["ssi", h], pooled["euler", h]
    return e - s, np.hypot(error_s, error_e)


def described(h):
    (s, _), (e, _) = pooled["ssi", h], pooled["euler", h]
    explosion = "Euler explodes" if np.isinf(e) else f"{e:.5f}"
    return f"h = {h}: {s:.5f} against {explosion}"


reproduction.verdict(
    "that the splitting's divergence is below Euler's, with a significant gap at large steps",
    "; ".join(described(h) for h in large),
    all(gap(h)[0] > 2 * gap(h)[1] for h in large),
)
reproduction.verdict(
    "that the gap is at large steps, and that the two are alike at small ones",
    "; ".join(f"h = {h}: a gap of {gap(h)[0] / gap(h)[1]:+.1f} standard errors" for h in small),
    all(abs(gap(h)[0]) < 3 * gap(h)[1] for h in small),
)
share = [explored[integrator, 0.001] for integrator in integrators]
reproduction.verdict(
    "that at h = 0.001 the splitting explores the space in 10^5 updates and Euler does not",
    f"{share[0]:.0%} of the splitting's chains in both wells, {share[1]:.0%} of Euler's",
    share[0] - share[1] > 2 * np.sqrt(sum(p * (1 - p) for p in share) / chains),
)
for h in shown:
    (s, error_s), (e, error_e) = heat["ssi", h], heat["euler", h]
    reproduction.verdict(
        f"that at h = {h} the splitting's thermostat comes nearer to 1",
        f"{s:.3f} ± {error_s:.3f} against {e:.3f} ± {error_e:.3f}",
        abs(e - 1) - abs(s - 1) > 2 * np.hypot(error_s, error_e),
    )
reproduction.end()
