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
# # FLA on a double well
#
# [Şimşekli (2017)](https://arxiv.org/abs/1706.03649), Figures 2, 3 and 4. Langevin
# dynamics (ULA) stays in the well in which it starts. Noise with heavy tails, the α-stable
# noise of `FLA`, jumps to the other well. The paper estimates the mean of the target
# and reports its bias over repetitions. It does so for its first scheme, a fractional
# difference of $2K + 1$ terms at distances δ (`drift="riesz"`), against K and δ (Figure 3), and
# for FLA itself against α (Figure 4). [The theorems](fla_theory) are checked on another page, with
# the bias that each curve here has in the limit of small steps and many draws.
#
# The paper's text version lost its numbers and the formula of the potential. So ours are
#
# - **Potential.** Two wells of different depth, 7 apart.
# - **Step sizes.** The paper's are $(a/n)^b$ at update n. Ours are $h(1 + t/1000)^{-b}$ at t,
#   with h = 0.04 and b = 1/3 or 0.6, so that steps do not vanish before a chain has seen both
#   wells. Averages are weighted by the steps. Beside them are constant ones.
# - **Repetitions.** 32 chains of 60,000 updates.
# - **Taming.** Updates are tamed, as [the mathematics](../../mathematics) explains. The paper's are
#   not; without it most chains diverge here.
#
# With b = 1/3 weighted averages of Langevin chains converge fastest (Lamberton and Pagès, 2002).

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from reproduction import QUIET, SMALL, Reproduction, beyond, over_seeds

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
run = Reproduction("fla_double_well", "Şimşekli (2017)", "Figures 2, 3, 4: double well")
CHAINS, UPDATES = (4, 3000) if SMALL else (32, 60_000)


def potential(x):
    return (x + 5) * (x + 1) * (x - 1.02) * (x - 5) / 10 + 0.5


grid = np.linspace(-9, 9, 100_001)
density = np.exp(-potential(grid))
density /= np.trapezoid(density, grid)
EXACT = np.trapezoid(grid * density, grid)
LEFT = np.trapezoid(density * (grid < 0), grid)
# What a chain's error is that never leaves its well
ONE_WELL = [abs(np.average(grid[s], weights=density[s]) - EXACT) for s in (grid < 0, grid > 0)]
print(f"mean {EXACT:.4f}, mass of the left well {LEFT:.4f}")
print("error of a chain in the left well {:.2f}, in the right well {:.2f}".format(*ONE_WELL))

# %% [markdown]
# ## Model and sampler
#
# Each repetition is a chain of its own, started between the wells. Draws have weights that are
# proportional to their step sizes.


# %%
def falling(power, h=0.04):
    return sg.polynomial(a=h * 1000**power, b=1000, gamma=power)


FALLING = falling(1 / 3)


def sample(method=sg.FLA, *, h=FALLING, thin=150, **options):
    """Draws of many chains and their weights, shape (chain, draw)."""
    with pm.Model():
        x = pm.Flat("x", initval=0.0)
        pm.Potential("U", -potential(x))
        step = method(
            step_size=h, thin=thin, scale=None, gradient="plain", batches=1, backend="jax",
            **options,
        )  # fmt: skip
        dt = pm.sample(
            step=step, draws=UPDATES // thin, tune=0, chains=CHAINS, random_seed=1, **QUIET
        )
    run.count(CHAINS * UPDATES)
    return dt.posterior["x"].values, dt.sample_stats["weight"].values


def errors(found):
    """Error of the mean of each chain."""
    draws, weights = found
    return np.average(draws, weights=weights, axis=1) - EXACT


def shown(values):
    return "{:.2f} ± {:.2f}".format(*over_seeds(values))


# %% [markdown]
# ## Figure 2: which wells are found


# %%
def in_both(found):
    """Share of the chains that are at least 5 % of their time in each well."""
    left = (found[0] < 0).mean(axis=1)
    return np.mean((left > 0.05) & (left < 0.95))


ula, fla = sample(sg.SGLD, thin=20), sample(alpha=1.7, thin=20)
run.verdict(
    "that ULA locates one of the modes only, FLA both (Fig. 2)",
    f"both wells in {in_both(ula):.0%} of ULA's chains and {in_both(fla):.0%} of FLA's (α = 1.7)",
    in_both(ula) == 0 and in_both(fla) == 1,
    seeds=CHAINS,
)

# %% [markdown]
# ## Figure 3: the fractional difference
#
# Above: the number of terms K at δ = 0.2. Below: δ at K = 20. Falling steps with b = 1/3 for all α,
# and constant steps of 0.02 for one.

# %%
ALPHAS = (1.6,) if SMALL else (1.3, 1.6, 1.9)
TERMS = (2, 20, 50) if SMALL else (2, 10, 20, 50)
DELTAS = (0.05, 0.2, 2.0) if SMALL else (0.05, 0.2, 0.5, 2.0)
SETTINGS = list(dict.fromkeys([*((0.2, k) for k in TERMS), *((d, 20) for d in DELTAS)]))
CURVES = {(a, "falling"): FALLING for a in ALPHAS} | {(1.6, "constant"): 0.02}
riesz = {
    curve: {
        (d, k): errors(sample(h=h, alpha=curve[0], drift="riesz", delta=d, terms=k))
        for d, k in SETTINGS
    }
    for curve, h in CURVES.items()
}
for (alpha, steps), of in riesz.items():
    print(f"α = {alpha:g}, {steps} steps, error of the mean")
    print("; ".join(f"δ = {d:g}, K = {k}: {shown(values)}" for (d, k), values in of.items()))


def change(one, other):
    """By how much the bias falls, over chains, averaged over the α with falling steps.

    Chains of one number have the same noise, so that differences are taken chain by chain.
    """
    each = [
        np.sign(riesz[a, "falling"][one].mean())
        * (riesz[a, "falling"][one] - riesz[a, "falling"][other])
        for a in ALPHAS
    ]
    return over_seeds(np.mean(each, axis=0))


fall = change((0.2, TERMS[0]), (0.2, TERMS[-1]))
run.verdict(
    "that the bias degrades gracefully for increasing K, at a fixed δ (Fig. 3, top)",
    "a bias that falls by {:.2f} ± {:.2f}".format(*fall)
    + f" from K = {TERMS[0]} to {TERMS[-1]}, over α = {', '.join(map(str, ALPHAS))}",
    beyond(*fall),
    seeds=CHAINS,
)
drop, rise = change((0.05, 20), (0.5 if not SMALL else 0.2, 20)), change((2.0, 20), (0.2, 20))
verdicts = beyond(*drop), beyond(*rise)
run.verdict(
    "that the bias drops as δ grows up to a certain point, then increases (Fig. 3, bottom)",
    "a fall of {:.2f} ± {:.2f} from δ = 0.05 to 0.5".format(*drop)
    + " and a bias that is {:.2f} ± {:.2f} greater at δ = 2 than at 0.2".format(*rise),
    False if False in verdicts else None if None in verdicts else True,
    seeds=CHAINS,
)
widest = {a: over_seeds(np.abs(riesz[a, "falling"][2.0, 20])) for a in ALPHAS}
if len(ALPHAS) > 1:
    low, high = widest[ALPHAS[0]], widest[ALPHAS[-1]]
    run.verdict(
        "that the performance is more sensitive to δ as α becomes smaller (Fig. 3, bottom)",
        "a mean absolute error at δ = 2 of "
        + ", ".join("{:.1f} ± {:.1f}".format(*widest[a]) + f" (α = {a:g})" for a in ALPHAS),
        beyond(low[0] - high[0], np.hypot(low[1], high[1])),
        seeds=CHAINS,
    )
most = {curve: over_seeds(of[0.2, TERMS[-1]]) for curve, of in riesz.items()}
run.verdict(
    "that weighted averages with falling steps converge where the drift is exact (Corollary 1)",
    f"with K = {TERMS[-1]} at δ = 0.2 errors of the mean of "
    + ", ".join("{:+.2f} ± {:.2f}".format(*most[c]) + f" (α = {c[0]:g}, {c[1]})" for c in most),
    all(abs(m) < 3 * se for (_, steps), (m, se) in most.items() if steps == "falling"),
    seeds=CHAINS,
)

# %% [markdown]
# ## Figure 4: FLA against α
#
# The measure is the paper's, the mean over repetitions of the absolute error, in which a chain
# that stays in one well counts in full. The paper shows the best of several a and b for each α. So
# do we, of falling steps with b = 1/3 and 0.6, and beside them constant steps.

# %%
OF_FLA = (1.5, 2.0) if SMALL else (1.2, 1.4, 1.6, 1.7, 1.8, 1.9, 1.95, 2.0)
HOW = {"falling": [FALLING, falling(0.6)], "constant": [0.02]}
tried = {
    steps: {a: [errors(sample(h=h, alpha=a)) for h in hs] for a in OF_FLA}
    for steps, hs in HOW.items()
}
best = {
    steps: {a: min(all_of, key=lambda e: np.abs(e).mean()) for a, all_of in of.items()}
    for steps, of in tried.items()
}
absolute = {steps: {a: over_seeds(np.abs(e)) for a, e in of.items()} for steps, of in best.items()}
of_falling = absolute["falling"]
least = min(of_falling, key=lambda a: of_falling[a][0])
run.verdict(
    "that at α = 2 the algorithm concentrates on either one of the modes at each trial, and the "
    "bias rapidly decreases below (Fig. 4)",
    "a mean absolute error of "
    + "; ".join("{:.2f} ± {:.2f}".format(*of_falling[a]) + f" (α = {a:g})" for a in OF_FLA)
    + "; of {:.2f} and {:.2f} in the left and the right well alone".format(*ONE_WELL),
    beyond(
        of_falling[2.0][0] - of_falling[least][0],
        np.hypot(*[of_falling[a][1] for a in (2.0, least)]),
    ),
    seeds=CHAINS,
)
biases = {a: over_seeds(best["falling"][a]) for a in OF_FLA if a < 2}
weights = np.array([1 / se**2 for _, se in biases.values()])
bias = np.average([m for m, _ in biases.values()], weights=weights), weights.sum() ** -0.5
first = min((np.abs(of[0.2, TERMS[-1]]) for of in riesz.values()), key=np.mean)
run.verdict(
    "that FLA's results are in line with the best ones of Figure 3",
    "a least mean absolute error of {:.2f} ± {:.2f}".format(*of_falling[least])
    + f" (FLA, α = {least:g}) and {shown(first)} (K = {TERMS[-1]})",
    {True: False, False: True, None: True}[
        beyond(
            of_falling[least][0] - first.mean(),
            np.hypot(of_falling[least][1], over_seeds(first)[1]),
        )
    ],
    seeds=CHAINS,
)
print("FLA's error of the mean over all α < 2: {:+.2f} ± {:.2f}".format(*bias))

# %% [markdown]
# The absolute error of one chain of this length is mostly chance. The error's mean over chains is
# FLA's bias: it does not vanish with smaller steps or with more draws, since FLA gives both wells
# equal weight. [Without random numbers](fla_theory) it is +0.29 at every α below 2. So the
# best α is that at which chains cross most often, and not one with the least bias.
#
# ## The pictures

# %%
figure, axes = plt.subplots(3, 2, figsize=(10, 9), layout="constrained")
left, right = axes.T
left[0].plot(grid, potential(grid))
left[0].set(xlim=(-6.5, 6.5), ylim=(-25, 40), ylabel="U", title="Fig. 2, top: the potential")
for axis, (draws, weights), name in ((left[1], ula, "middle: ULA"), (left[2], fla, "bottom: FLA")):
    axis.hist(
        draws[0], bins=np.linspace(-6.5, 6.5, 80), density=True, weights=weights[0], label="a chain"
    )
    axis.plot(grid, density, label="target")
    axis.set(xlim=(-6.5, 6.5), xlabel="x", ylabel="density", title=f"Fig. 2, {name}")
    axis.legend(fontsize=8)
for (alpha, steps), of in riesz.items():
    style = {"marker": "o", "ls": "--" if steps == "constant" else "-", "capsize": 2}
    label = f"α = {alpha:g}, {steps} steps"
    for axis, at, keys in (
        (right[0], TERMS, [(0.2, k) for k in TERMS]),
        (right[1], DELTAS, [(d, 20) for d in DELTAS]),
    ):
        mean, error = np.transpose([over_seeds(of[key]) for key in keys])
        axis.errorbar(at, np.abs(mean), error, label=label, **style)
right[0].set(xlabel="K, at δ = 0.2", ylabel="bias of the mean", title="Fig. 3, top")
right[1].set(xlabel="δ, at K = 20", ylabel="bias of the mean", title="Fig. 3, bottom")
right[1].set(xscale="log", yscale="log")
for steps, of in absolute.items():
    mean, error = np.transpose(list(of.values()))
    style = {"marker": "o", "ls": "--" if steps == "constant" else "-", "capsize": 2}
    right[2].errorbar(OF_FLA, mean, error, label=f"{steps} steps", **style)
right[2].set(xlabel="α", ylabel="mean absolute error", title="Fig. 4: FLA")
for axis in right:
    axis.legend(fontsize=8)
plt.show()
run.picture(figure)

# %% [markdown]
# ## With nothing set
#
# Four chains of each method that samples this model, with no argument but the seed.

# %%
NOTHING = {
    "sg.FLA()": sg.FLA, "sg.CoRVSGLD()": sg.CoRVSGLD, "sg.MSGNHT()": sg.MSGNHT,
    "sg.SMLD()": sg.SMLD,
}  # fmt: skip
for name, method in list(NOTHING.items())[: 1 if SMALL else None]:
    with run.untuned(name) as gives:
        with pm.Model():
            x = pm.Flat("x", initval=0.0)
            pm.Potential("U", -potential(x))
            dt = pm.sample(
                step=method(), draws=50 if SMALL else 1000, tune=50 if SMALL else 1000, chains=4,
                random_seed=1, **QUIET,
            )  # fmt: skip
        found = dt.posterior["x"].values, np.ones(dt.posterior["x"].shape)
        mean, error = over_seeds(errors(found))
        gives(
            f"both wells in {in_both(found):.0%} of four chains, an error of the mean of "
            f"{mean:+.2f} ± {error:.2f}",
            in_both(found) == 1 and abs(mean) < 2 * error and error < 0.5,
        )
run.end()
