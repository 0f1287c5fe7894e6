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
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), section 3, Figures 1 and 2: the multivariate
# thermostat on one dimension with two wells, by the symmetric splitting (mSGNHT-S) and by Euler's
# scheme (mSGNHT-E). The paper says
#
# 1. that S gives the better density, with a significant gap at larger step sizes (Figure 1);
# 2. that at h = 0.001 Euler's chain has not explored the space after $10^5$ updates, that at
#    h = 0.2 it concentrates too much on the mode, and that in both cases the thermostat of S comes
#    nearer to its theoretical value 1 (Figure 2);
# 3. that the bias falls as $T^{-2/3}$ with S and as $T^{-1/2}$ with E, T updates being made with
#    the best step size for T (Remark 2).
#
# The setting is the paper's: noise $N(0, 2Bh)$ with $B = 1$ in the gradient of each update, none
# added to it, $10^6$ updates, h from 0.001 to 0.3 (with those of the [authors'
# program](https://github.com/ChunyuanLI/mSGNHT)). Gradient noise of that law is the same as
# injected noise: here the gradient is exact and D = 1. The paper has one chain, we have 32
# independent ones from θ = 0, as elements of one variable. Every 50th draw is kept.
#
# The thermostat with one friction for all parameters (SGNHT) is mSGNHT if there is one parameter.
# Its curve is that of the 32 wells with one friction for all of them.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import reproduction

from pymc.exceptions import SamplingError
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, over_seeds

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
run = Reproduction("msgnht_double_well", "Li et al. (2016)", "Figures 1 and 2, Remark 2: wells")

STEPS = (0.001, 0.2, 0.3) if SMALL else (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
CHAINS, UPDATES, THIN = 32, 100_000 if SMALL else 1_000_000, 50
DRAWS, FIRST = UPDATES // THIN, 100_000 // THIN
S, E = "mSGNHT-S", "mSGNHT-E"

# %% [markdown]
# ## Model and call


# %%
def potential(x):
    return (x + 4) * (x + 1) * (x - 1) * (x - 3) / 14 + 0.5


with pm.Model() as wells:
    theta = pm.Flat("theta", shape=CHAINS, initval=np.zeros(CHAINS))
    pm.Potential("minus_U", -potential(theta).sum())


def step_of(method, h, thin, model):
    cls = sg.MSGNHT if method.startswith("m") else sg.SGNHT
    step = cls(
        step_size=h, thin=thin, integrator="ssi" if method.endswith("-S") else "euler",
        diffusion=1.0, thermostat_mass=1.0, scale=None, gradient="plain", batches=1, model=model,
    )  # fmt: skip
    return reproduction.unmoved(step)


# %% [markdown]
# ## Truth
#
# The left well has 87 % of the mass. The histogram has 50 bins of equal width, of which the first
# and the last are open. Half a draw is added to each, so that an empty one costs a finite amount.

# %%
edges = np.linspace(-4.5, 3.5, 51)
grid = np.linspace(-8, 8, 160_001)
density = np.exp(-potential(grid))
density /= density.sum() * (grid[1] - grid[0])
exact = np.histogram(grid, [-np.inf, *edges[1:-1], np.inf], weights=density)[0]
exact /= exact.sum()
near_mode = np.abs(edges[:-1] + 0.08 - grid[density.argmax()]) < 0.5


def counts(draws):
    """Draws in each bin, of shape (chain, bin)."""
    bins = np.searchsorted(edges[1:-1], draws)
    return np.array([np.bincount(column, minlength=50) for column in bins.T])


def divergence(n):
    """Kullback–Leibler divergence of histograms from the truth."""
    q = n + 0.5
    return np.sum(exact * np.log(exact / (q / q.sum(axis=-1, keepdims=True))), axis=-1)


def of_all(n):
    """Divergence of all chains together and its standard error, by leaving out each in turn."""
    each = divergence(n.sum(axis=0) - n)
    return divergence(n.sum(axis=0)), np.sqrt((len(n) - 1) * each.var())


# %% [markdown]
# ## Sampling
#
# With a large step Euler's scheme explodes now and then: an unusually fast particle makes its
# thermostat so strong that one update reverses the momentum and enlarges it. `pm.sample` then stops
# with an error. The draws before count, and the chains start again from θ = 0, at most ten times.
# (The package moves the start of a model by up to 1 in each coordinate; `reproduction.unmoved`
# keeps it.)


# %%
def chains(step, seed):
    """Draws and mean thermostats until the last draw, or until a chain explodes."""
    kept = []
    try:
        pm.sample(
            step=step, draws=DRAWS, tune=0, chains=1, random_seed=seed, model=wells, quiet=True,
            callback=lambda trace, draw: kept.append((draw.point["theta"], draw.stats[0])), **QUIET,
        )  # fmt: skip
    except SamplingError:
        kept = [row for row in kept if row[1]["rejected_updates"] == 0]
    heat = np.array([stats["thermostat"] for _, stats in kept])
    return np.reshape([draw for draw, _ in kept], (-1, CHAINS)), heat


found, heat, pooled, single = {}, {}, {}, {}
for method in (S, E, "SGNHT-S", "SGNHT-E"):
    size = StepSize()
    step = step_of(method, size, THIN, wells)
    for h in STEPS if method in (S, E) else (STEPS[-1:] if SMALL else (0.1, 0.2, 0.3)):
        size.h, parts = h, []
        while sum(len(part[0]) for part in parts) < DRAWS and len(parts) < (2 if SMALL else 11):
            parts.append(chains(step, [len(found), len(parts)]))
        draws, heat[method, h] = (np.concatenate(x)[:DRAWS] for x in zip(*parts, strict=True))
        found[method, h], made = draws, CHAINS * THIN * len(draws)
        run.count(made)
        said = f"{len(parts) - 1} explosions in {made:,} updates"
        if len(draws) == DRAWS:
            n = counts(draws)
            pooled[method, h], single[method, h] = of_all(n), over_seeds(divergence(n))
            said += ", divergence {:.5f} ± {:.5f}, of one chain {:.4f} ± {:.4f}".format(
                *pooled[method, h], *single[method, h]
            )
        print(f"{method:8} h = {h:<5}: {said}", flush=True)

# %% [markdown]
# "Of one chain" is the mean over single chains of $10^6$ updates, such as the paper's. At small
# step sizes a chain covers a short time and visits the right well too few times, whatever the
# integrator.
#
# ## Remark 2
#
# Wells are crossed too rarely to see rates of convergence, so the target is N(0, 1) here, and the
# average is that of $x^2$ from a start at 0. Its bias is about $a/(Th) + b h^K$. The step size that
# makes it least goes as $T^{-1/2}$ for K = 1, Euler, and as $T^{-1/3}$ for K = 2, the splitting.

# %%
TIMES = (100, 400) if SMALL else (100, 200, 400, 800, 1600, 3200)
SEEDS, COPIES = (2, 500) if SMALL else (8, 4096)
with pm.Model() as normal:
    x = pm.Normal("x", shape=COPIES, initval=np.zeros(COPIES))
    pm.Deterministic("square", (x**2).mean())
bias, slopes = {}, {}
for method, K, first in ((S, 2, 0.3), (E, 1, 0.15)):
    size = StepSize()
    step = step_of(method, size, 1, normal)
    for T in TIMES:
        size.h = first * (TIMES[0] / T) ** (1 / (K + 1))
        dt = pm.sample(step=step, draws=T, tune=0, chains=SEEDS, random_seed=T, model=normal,
                       var_names=["square"], **QUIET)  # fmt: skip
        bias[method, T] = np.abs(dt.posterior["square"].values.mean(axis=1) - 1)
        run.count(T * COPIES * SEEDS)
    of_seeds = np.log([bias[method, T] for T in TIMES])
    slopes[method] = over_seeds(np.polyfit(np.log(TIMES), of_seeds, 1)[0])

# %% [markdown]
# ## Figures 1 and 2
#
# Left above, Figure 1; below, Remark 2. Right, Figure 2: histograms of one chain's first $10^5$
# updates, S in the first row and E in the second, and the mean thermostat of all chains so far.

# %%
figure = plt.figure(figsize=(13, 7.5), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.3))
(above, below), axes = left.subplots(2, 1), right.subplots(3, 2)
for i, method in enumerate((S, E, "SGNHT-S", "SGNHT-E")):
    for values, style, which in ((pooled, "o-", ""), (single, "o:", ", one chain"))[: 2 - i // 2]:
        line = [(h, *values[method, h]) for h in STEPS if (method, h) in values]
        above.errorbar(*np.transpose(line), fmt=style, ms=3, color=f"C{i}", label=method + which)
for i, method in enumerate((S, E)):
    line = [(T, *over_seeds(bias[method, T])) for T in TIMES]
    below.errorbar(*np.transpose(line), fmt="o-", ms=3, label=f"{method}, slope "
                   f"{slopes[method][0]:.2f}")  # fmt: skip
    for column, h in enumerate((0.001, 0.2)):
        draws = np.clip(found[method, h][:FIRST, 0], -4.5, 3.5)
        axes[i, column].hist(draws, edges, density=True, color=f"C{i}")
        axes[i, column].plot(grid, density, color="black", linewidth=1)
        axes[i, column].set(xlim=(-5, 4), title=f"Figure 2: {method}, h = {h}", xlabel="θ")
        means = heat[method, h][:FIRST].cumsum()
        made = np.arange(1, len(means) + 1)
        axes[2, column].plot(THIN * made, means / made, color=f"C{i}", label=method)
        axes[2, column].axhline(1, color="black", linewidth=1)
        axes[2, column].set(ylim=(0.8, 1.2), xlabel="updates", ylabel="mean thermostat")
above.set(xscale="log", yscale="log", title="Figure 1", xlabel="step size h",
          ylabel="KL divergence from the truth")  # fmt: skip
below.set(xscale="log", yscale="log", title="Remark 2: step sizes best for T", xlabel="updates T",
          ylabel="bias of the mean of x²")  # fmt: skip
for axis in (above, below, axes[2, 0]):
    axis.legend(fontsize=8)
plt.show()
run.picture(figure)

# %% [markdown]
# ## Verdicts
#
# What is seen: at large step sizes S is better by an order of magnitude, and from 0.25 on it alone
# stays finite. At small ones both follow the same dynamics, and what one chain shows is chance: the
# upper left histogram of Figure 2 is of a chain of S that was mostly in the right well. The
# rates of Remark 2 are there. With one friction for all wells (SGNHT), the friction hardly varies
# in time, and Euler's scheme works even at 0.3, although with a large error.
#
# A gap counts where it is two standard errors; those of a mean thermostat are of 20 stretches. In
# words "a ± b, c ± d" are values of S, then of E.


# %%
def compare(says, s, e, *, sign=1, form=".3f", more="", seeds=CHAINS):
    """Whether the value of E is above that of S, or below it; both with a standard error."""
    seen = " ± ".join(f"{x:{form}}" for x in s) + ", " + " ± ".join(f"{x:{form}}" for x in e)
    gap, error = sign * (e[0] - s[0]), float(np.hypot(s[1], e[1]))
    run.verdict(says, seen + more, beyond(gap, error), seeds=seeds)


for says, steps in (
    (
        "S has a lower divergence, with a significant gap at larger h",
        STEPS[-2:] if SMALL else STEPS[4:],
    ),
    ("S has a lower divergence consistently, at small h, too", STEPS[:1] if SMALL else STEPS[:4]),
):
    seen, holds = [], []
    for h in steps:
        (s, error), (e, other) = pooled[S, h], pooled.get((E, h), (np.nan, np.nan))
        explodes = (E, h) not in pooled
        seen.append(f"h = {h}: {s:.5f} ± {error:.5f}, "
                    + ("E explodes" if explodes else f"{e:.5f} ± {other:.5f}"))  # fmt: skip
        holds.append(explodes or beyond(e - s, float(np.hypot(error, other))))
    together = False if False in holds else None if None in holds else True
    run.verdict(f"{says} (Figure 1)", "; ".join(seen), together, seeds=CHAINS)
explored, near, mean_heat = {}, {}, {}
for m in (S, E):
    some, n = found[m, 0.001][:FIRST], counts(found[m, 0.2])
    explored[m] = over_seeds((some < -1.5).any(axis=0) & (some > 1.5).any(axis=0))
    near[m] = over_seeds(n[:, near_mode].sum(axis=1) / n.sum(axis=1))
    for h in (0.001, 0.2):
        mean, error = over_seeds(x.mean() for x in np.array_split(heat[m, h][:FIRST], 20))
        mean_heat[m, h] = (abs(mean - 1), error)
says = "at h = 0.001 S explores the space in 100,000 updates and E does not (Figure 2)"
compare(says, explored[S], explored[E], sign=-1, more=" of the chains have been in both wells")
run.verdict(
    "at h = 0.2 E concentrates too much on the mode (Figure 2)",
    f"a share within 0.5 of the mode of {near[E][0]:.4f} ± {near[E][1]:.4f} (S: {near[S][0]:.4f}; "
    f"truth: {exact[near_mode].sum():.4f})",
    beyond(near[E][0] - exact[near_mode].sum(), near[E][1]), seeds=CHAINS,
)  # fmt: skip
for h in (0.001, 0.2):
    compare(f"at h = {h} the thermostat of S comes nearer to 1 (Figure 2)", mean_heat[S, h],
            mean_heat[E, h], more=" away from 1")  # fmt: skip
for method, rate, words in ((S, -2 / 3, "T^-2/3"), (E, -1 / 2, "T^-1/2")):
    mean, error = slopes[method]
    run.verdict(
        f"the bias of {method} falls as {words} (Remark 2)",
        f"a slope of {mean:.3f} ± {error:.3f} for T from {TIMES[0]} to {TIMES[-1]}",
        beyond(mean - rate, error) is None, seeds=SEEDS,
    )  # fmt: skip
compare("the bias of S falls faster than that of E (Remark 2)", slopes[S], slopes[E], seeds=SEEDS,
        more=" are the slopes")  # fmt: skip

# %% [markdown]
# ## With nothing set

# %%
for call, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    with run.untuned(call) as gives:
        with pm.Model():
            one = pm.Flat("theta", initval=0.0)
            pm.Potential("minus_U", -potential(one))
            dt = pm.sample(200 if SMALL else 4000, step=method(), chains=4, random_seed=1, **QUIET)
        draws, true = dt.posterior["theta"].values, exact[edges[:-1] < 0].sum()
        mean, error = over_seeds((draws < 0).mean(axis=1))
        gives(
            f"a mass of the left well of {mean:.3f} ± {error:.3f} (exact: {true:.3f}), a "
            f"divergence of {divergence(counts(draws.T).sum(axis=0)):.4f}",
            beyond(mean - true, error) is None,
        )
run.end()
