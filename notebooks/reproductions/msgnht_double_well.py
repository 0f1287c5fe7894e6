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
# 1. that S gives the better density, with a significant gap at larger step sizes;
# 2. that at h = 0.001 Euler's chain has not explored the space after $10^5$ updates, and that at
#    h = 0.2 it concentrates too much on the mode;
# 3. that in both cases the thermostat of S comes nearer to its theoretical value 1;
# 4. that the bias falls as $T^{-2/3}$ with S and as $T^{-1/2}$ with E (Remark 2), T updates being
#    made with the best step size for T;
# 5. that S is almost as efficient as E.
#
# The setting is the paper's: noise $N(0, 2Bh)$ with $B = 1$ in the gradient of each update, none
# added to it, $10^6$ updates, h from 0.001 to 0.3 (with those of the [authors'
# program](https://github.com/ChunyuanLI/mSGNHT)). Gradient noise of that law is the same as
# injected noise: here the gradient is exact and D = 1. The paper has one chain, we have 64
# independent ones from θ = 0, as elements of one variable. Every 50th draw is kept.
#
# The thermostat with one friction for all parameters (SGNHT) is mSGNHT if there is one parameter.
# Its curve is that of the 64 wells with one friction for all of them.

# %%
import logging
import time

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from pymc.exceptions import SamplingError
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, over_seeds, unmoved

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
run = Reproduction("msgnht_double_well", "Li et al. (2016)", "Figures 1 and 2, Remark 2: wells")

STEPS = (0.001, 0.2, 0.3) if SMALL else (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
CHAINS, UPDATES, THIN = 64, 100_000 if SMALL else 1_000_000, 50
DRAWS = UPDATES // THIN

# %% [markdown]
# ## Model and call


# %%
def potential(x):
    return (x + 4) * (x + 1) * (x - 1) * (x - 3) / 14 + 0.5


papers = {"scale": None, "gradient": "plain", "batches": 1, "thermostat_mass": 1.0}
METHODS = {
    "mSGNHT-S": lambda h, thin: sg.MSGNHT(step_size=h, thin=thin, integrator="ssi", **papers),
    "mSGNHT-E": lambda h, thin: sg.MSGNHT(step_size=h, thin=thin, integrator="euler", **papers),
    "SGNHT-S": lambda h, thin: sg.SGNHT(step_size=h, thin=thin, integrator="ssi", **papers),
    "SGNHT-E": lambda h, thin: sg.SGNHT(step_size=h, thin=thin, integrator="euler", **papers),
}
with pm.Model() as wells:
    theta = pm.Flat("theta", shape=CHAINS, initval=np.zeros(CHAINS))
    pm.Potential("minus_U", -potential(theta).sum())

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


# %%
def chains(step, draws, seed):
    """Draws and mean thermostats, and whether the chains ended before the last draw."""
    kept = []
    try:
        pm.sample(
            step=step, draws=draws, tune=0, chains=1, random_seed=seed, model=wells, quiet=True,
            callback=lambda trace, draw: kept.append((draw.point["theta"], draw.stats[0])), **QUIET,
        )  # fmt: skip
    except SamplingError:
        kept = [row for row in kept if row[1]["rejected_updates"] == 0]
    draws, stats = zip(*kept, strict=True) if kept else ((), ())
    return np.reshape(draws, (-1, CHAINS)), np.array([s["thermostat"] for s in stats])


found, heat, explosions = {}, {}, {}
for method, make in METHODS.items():
    size = StepSize()
    with wells:
        step = unmoved(make(size, THIN))
    for size.h in STEPS if method.startswith("m") else [h for h in STEPS if h >= 0.03]:
        parts = []
        while sum(len(part[0]) for part in parts) < DRAWS and len(parts) < (2 if SMALL else 11):
            parts.append(chains(step, DRAWS, [len(found), len(parts)]))
        key = method, size.h
        found[key] = np.concatenate([part[0] for part in parts])[:DRAWS]
        heat[key] = np.concatenate([part[1] for part in parts])[:DRAWS]
        explosions[key] = len(parts) - 1
        run.count(CHAINS * THIN * len(found[key]))

# %% [markdown]
# A divergence is taken where the chains have all their updates. "Of one chain" is the mean over
# single chains of $10^6$ updates, such as the paper's. At small step sizes a chain covers a short
# time and visits the right well too few times, whatever the integrator.

# %%
pooled, single = {}, {}
for (method, h), draws in found.items():
    said = f"{explosions[method, h]} explosions in {CHAINS * THIN * len(draws):,} updates"
    if len(draws) == DRAWS:
        n = counts(draws)
        pooled[method, h], single[method, h] = of_all(n), over_seeds(divergence(n))
        said += ", divergence {:.5f} ± {:.5f}, of one chain {:.5f} ± {:.5f}".format(
            *pooled[method, h], *single[method, h]
        )
    print(f"{method:8} h = {h:<5}: {said}")

# %% [markdown]
# ## Remark 2
#
# Wells are crossed too rarely to see rates of convergence, so the target is N(0, 1) here, and the
# average is that of $x^2$ from a start at 0. Its bias is about $a/(Th) + b h^K$. The step size that
# makes it least goes as $T^{-1/2}$ for K = 1, Euler, and as $T^{-1/3}$ for K = 2, the splitting.

# %%
TIMES = (100, 400) if SMALL else (100, 200, 400, 800, 1600, 3200)
SEEDS, COPIES = (2, 500) if SMALL else (8, 8192)
with pm.Model() as normal:
    x = pm.Normal("x", shape=COPIES, initval=np.zeros(COPIES))
    pm.Deterministic("mean_square", (x**2).mean())
bias = {}
for method, K, first in (("mSGNHT-S", 2, 0.3), ("mSGNHT-E", 1, 0.15)):
    size = StepSize()
    with normal:
        step = unmoved(METHODS[method](size, 1))
    for T in TIMES:
        size.h = first * (TIMES[0] / T) ** (1 / (K + 1))
        bias[method, T] = [
            pm.sample(step=step, draws=T, tune=0, chains=1, random_seed=seed, model=normal,
                      var_names=["mean_square"], **QUIET)
            .posterior["mean_square"].values.mean() - 1
            for seed in range(SEEDS)
        ]  # fmt: skip
        run.count(T * COPIES * SEEDS)

logs = np.log(TIMES)
slopes = {
    method: over_seeds(
        np.polyfit(logs, np.log(np.abs([bias[method, T][seed] for T in TIMES])), 1)[0]
        for seed in range(SEEDS)
    )
    for method in ("mSGNHT-S", "mSGNHT-E")
}

# %% [markdown]
# ## Time of an update
#
# Runs of S and E take turns. One target is the 64 wells, whose gradient costs next to nothing; the
# other is a logistic regression with 100 parameters and batches of 100 rows. CPU time counts.

# %%
rng = np.random.default_rng(0)
X, y = rng.normal(size=(10_000, 100)), rng.integers(0, 2, 10_000)
with pm.Model() as regression:
    rows, labels = pm.Minibatch(X, y, batch_size=100)
    beta = pm.Normal("beta", shape=100)
    pm.Bernoulli("y", logit_p=rows @ beta, observed=labels, total_size=len(y))
extra = {}
for name, built in (("64 wells", wells), ("regression", regression)):
    steps = []
    for method in ("mSGNHT-S", "mSGNHT-E"):
        with built:
            steps.append(METHODS[method](0.01, 500))
    spent = []
    for seed in range(3 if SMALL else 21):
        for step in steps:
            began = time.process_time()
            pm.sample(step=step, draws=4 if SMALL else 100, tune=0, chains=1, random_seed=seed,
                      model=built, **QUIET)  # fmt: skip
            spent.append(time.process_time() - began)
    # The first run of each compiles
    ratio = np.divide(*np.reshape(spent, (-1, 2))[1:].T)
    extra[name] = over_seeds(100 * (ratio - 1))

# %% [markdown]
# ## Figures 1 and 2
#
# Left above, Figure 1; below, Remark 2. Right, Figure 2: histograms of one chain's first $10^5$
# updates, S in the first row and E in the second, and the mean thermostat of all chains so far.

# %%
first = min(100_000 // THIN, DRAWS)
colours = {"mSGNHT-S": "C0", "mSGNHT-E": "C1", "SGNHT-S": "C2", "SGNHT-E": "C3"}
figure = plt.figure(figsize=(13, 7.5), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.3))
axes = left.subplots(2, 1), right.subplots(3, 2)
for method, colour in colours.items():
    for values, style in ((pooled, "o-"), (single, "o:")):
        stable = [h for h in STEPS if (method, h) in values]
        if values is pooled or method.startswith("m"):
            axes[0][0].errorbar(
                stable, *np.transpose([values[method, h] for h in stable]), fmt=style, ms=3,
                color=colour, label=method + (", one chain" if values is single else ""),
            )  # fmt: skip
    if method.startswith("m"):
        line = [over_seeds(np.abs(bias[method, T])) for T in TIMES]
        axes[0][1].errorbar(TIMES, *np.transpose(line), fmt="o-", ms=3, color=colour,
                            label=f"{method}: slope {slopes[method][0]:.2f}")  # fmt: skip
for axis, title, x_label, y_label in (
    (axes[0][0], "Figure 1", "step size h", "KL divergence from the truth"),
    (axes[0][1], "Remark 2: N(0, 1), step sizes best for T", "updates T", "bias of the mean of x²"),
):
    axis.set(xscale="log", yscale="log", title=title, xlabel=x_label, ylabel=y_label)
    axis.legend(fontsize=8)
for column, h in enumerate((0.001, 0.2)):
    for row, method in enumerate(("mSGNHT-S", "mSGNHT-E")):
        axis = axes[1][row, column]
        axis.hist(np.clip(found[method, h][:first, 0], -4.5, 3.5), edges, density=True,
                  color=colours[method])  # fmt: skip
        axis.plot(grid, density, color="black", linewidth=1)
        axis.set(xlim=(-5, 4), title=f"Figure 2: {method}, h = {h}", xlabel="θ", ylabel="density")
        means = np.cumsum(heat[method, h][:first]) / np.arange(1, first + 1)
        axes[1][2, column].plot(THIN * np.arange(1, first + 1), means, color=colours[method])
    axes[1][2, column].axhline(1, color="black", linewidth=1)
    axes[1][2, column].set(ylim=(0.8, 1.2), xlabel="updates", ylabel="mean thermostat")
plt.show()
run.picture(figure)

# %% [markdown]
# ## With nothing set

# %%
for call, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    began = time.perf_counter()
    with pm.Model():
        one = pm.Flat("theta", initval=0.0)
        pm.Potential("minus_U", -potential(one))
        dt = pm.sample(
            step=method(), draws=200 if SMALL else 5000, chains=8, random_seed=1, **QUIET
        )
    draws = dt.posterior["theta"].values
    mean, error = over_seeds((draws < 0).mean(axis=1))
    true = exact[edges[:-1] < 0].sum()
    run.untuned(
        call, f"a mass of the left well of {mean:.3f} ± {error:.3f} (exact: {true:.3f}), a "
        f"divergence of {divergence(counts(draws.T).sum(axis=0)):.4f}",
        beyond(mean - true, error) is None, time.perf_counter() - began,
    )  # fmt: skip

# %% [markdown]
# ## Verdicts
#
# A gap counts where it is two standard errors; those of a mean thermostat are of 20 stretches.

# %%
S, E = "mSGNHT-S", "mSGNHT-E"
for says, steps in (
    ("S has the lower divergence, with a significant gap at larger h (Figure 1)",
     [h for h in STEPS if h >= 0.05]),
    ("S is consistently better, at small h, too (Figure 1)", [h for h in STEPS if h < 0.05]),
):  # fmt: skip
    seen, holds = [], []
    for h in steps:
        if (E, h) not in pooled:
            seen.append(f"h = {h}: {pooled[S, h][0]:.5f}, E explodes")
            holds.append(True)
            continue
        (s, error_s), (e, error_e) = pooled[S, h], pooled[E, h]
        seen.append(f"h = {h}: {s:.5f} ± {error_s:.5f} against {e:.5f} ± {error_e:.5f}")
        holds.append(beyond(e - s, np.hypot(error_s, error_e)))
    run.verdict(
        says, "; ".join(seen), False if False in holds else None if None in holds else True,
        seeds=CHAINS,
    )  # fmt: skip
share = {}
for method in (S, E):
    some = found[method, 0.001][:first]
    share[method] = over_seeds((some < -1.5).any(axis=0) & (some > 1.5).any(axis=0))
gap = share[S][0] - share[E][0]
run.verdict(
    "at h = 0.001 S explores the space in 100,000 updates, E does not (Figure 2)",
    f"{share[S][0]:.0%} ± {share[S][1]:.0%} of the chains of S, {share[E][0]:.0%} ± "
    f"{share[E][1]:.0%} of those of E have been in both wells",
    beyond(gap, np.hypot(share[S][1], share[E][1])), seeds=CHAINS,
)  # fmt: skip
n = {method: counts(found[method, 0.2]) for method in (S, E)}
near = {m: over_seeds(k[:, near_mode].sum(axis=1) / k.sum(axis=1)) for m, k in n.items()}
run.verdict(
    "at h = 0.2 E concentrates too much on the mode (Figure 2)",
    f"{100 * near[E][0]:.1f} ± {100 * near[E][1]:.1f} % within 0.5 of the mode (S: "
    f"{100 * near[S][0]:.1f} ± {100 * near[S][1]:.1f}; truth: {100 * exact[near_mode].sum():.1f})",
    beyond(near[E][0] - exact[near_mode].sum(), near[E][1]), seeds=CHAINS,
)  # fmt: skip
for h in (0.001, 0.2):
    (s, error_s), (e, error_e) = (
        over_seeds(heat[m, h][:first].reshape(20, -1).mean(axis=1)) for m in (S, E)
    )
    run.verdict(
        f"at h = {h} the thermostat of S comes nearer to 1 (Figure 2)",
        f"{s:.3f} ± {error_s:.3f} against {e:.3f} ± {error_e:.3f}",
        beyond(abs(e - 1) - abs(s - 1), np.hypot(error_s, error_e)), seeds=CHAINS,
    )  # fmt: skip
for method, rate, words in ((S, -2 / 3, "T^-2/3"), (E, -1 / 2, "T^-1/2")):
    mean, error = slopes[method]
    run.verdict(
        f"the bias of {method} falls as {words} (Remark 2)",
        f"slope {mean:.3f} ± {error:.3f} for T from {TIMES[0]} to {TIMES[-1]:,}",
        beyond(mean - rate, error) is None, seeds=SEEDS,
    )  # fmt: skip
gap = slopes[E][0] - slopes[S][0]
run.verdict(
    "the bias of S falls faster than that of E (Remark 2)", f"slopes differ by {gap:.3f}",
    beyond(gap, np.hypot(slopes[S][1], slopes[E][1])), seeds=SEEDS,
)  # fmt: skip
(mean, error), (bare, bare_error) = extra["regression"], extra["64 wells"]
run.verdict(
    "S is almost as efficient as E (section 3; here: at most 10 % more time for an update)",
    f"{mean:.1f} ± {error:.1f} % more CPU time in a logistic regression, {bare:.1f} ± "
    f"{bare_error:.1f} % in the wells, whose gradient costs nothing",
    beyond(10 - mean, error), seeds=20,
)  # fmt: skip
run.end()
