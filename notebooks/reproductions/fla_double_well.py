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
# dynamics stays in the well in which it starts. Noise with heavy tails, the α-stable
# noise of `FLA`, jumps to the other well. The paper estimates the mean of the target
# and reports its bias over repetitions. It does so for its first scheme, a fractional
# difference of $2K + 1$ terms at distances $\delta$ (`drift="riesz"`), against $K$ and
# $\delta$, and for FLA itself against α.
#
# Four things differ from the paper. Its formula of the potential is lost in its text
# version; ours has two wells of the same kind. The constants of its falling step sizes
# are lost, too; ours are constant, and we try a smaller one. Updates are tamed, as [the
# mathematics](../../mathematics) explains, because otherwise most chains diverge here.
# The bias here is that of the mean over all repetitions, so that it can be
# distinguished from Monte-Carlo error.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from reproduction import QUIET, SMALL, Reproduction

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
reproduction = Reproduction("fla_double_well", "Şimşekli (2017)", "Figures 2, 3, 4: double well")
CHAINS = 4 if SMALL else 16
DRAWS = 200 if SMALL else 4000
# The step size, and updates for each draw
H, THIN = 0.01, 50

# %% [markdown]
# ## The target


# %%
def potential(x):
    return (x + 5) * (x + 1) * (x - 1.02) * (x - 5) / 10 + 0.5


grid = np.linspace(-9, 9, 100_001)
density = np.exp(-potential(grid))
density /= density.sum()
EXACT = float(np.sum(grid * density))
LEFT = float(density[grid < 0].sum())
print(f"mean {EXACT:.4f}, mass of the left well {LEFT:.4f}")


# %% [markdown]
# Each repetition is a chain of its own, started between the wells.


# %%
def sample(method=sg.FLA, *, h=H, thin=THIN, tuned=False, draws=None, **options):
    """Draws of many chains, shape (chain, draw)."""
    draws = draws or DRAWS
    by_hand = {} if tuned else {"step_size": h, "thin": thin, "scale": None}
    with pm.Model():
        x = pm.Flat("x", initval=0.0)
        pm.Potential("U", -potential(x))
        step = method(gradient="plain", batches=1, backend="jax", **by_hand, **options)
        found = pm.sample(
            step=step, draws=draws, tune=100, chains=CHAINS, random_seed=1,
            **QUIET,
        )  # fmt: skip
    reproduction.count(CHAINS * (draws + 100) * int(found.sample_stats["thin"].values[0, 0]))
    return found.posterior["x"].values


def errors(draws):
    """Error of the mean of each chain."""
    return draws.mean(axis=1) - EXACT


def bias(found):
    """Absolute bias, of errors of chains, and its standard error."""
    return abs(found.mean()), found.std(ddof=1) / np.sqrt(len(found))


# %% [markdown]
# ## Figure 2: which wells are found
#
# The Langevin algorithm (ULA) is FLA at α = 2.

# %%
ula = sample(sg.SGLD)
fla = sample(alpha=1.7)
figure, axes = plt.subplots(3, 1, figsize=(6, 7), sharex=True, layout="constrained")
axes[0].plot(grid, potential(grid))
axes[0].set(xlim=(-6.5, 6.5), ylim=(-25, 40), ylabel="U", title="The potential")
for axis, draws, name in ((axes[1], ula, "ULA"), (axes[2], fla, "FLA, α = 1.7")):
    axis.hist(draws[0], bins=np.linspace(-6.5, 6.5, 80), density=True)
    axis.plot(grid, density / (grid[1] - grid[0]))
    axis.set(ylabel="density", title=f"{name}, one chain")
axes[2].set(xlabel="x")
plt.show()


def share_of_chains_in_both(draws):
    left = (draws < 0).mean(axis=1)
    return float(np.mean((left > 0.05) & (left < 0.95)))


both_ula, both_fla = share_of_chains_in_both(ula), share_of_chains_in_both(fla)
reproduction.verdict(
    "ULA locates one of the modes only, FLA both (Fig. 2)",
    f"both wells in {both_ula:.0%} of ULA's chains and {both_fla:.0%} of FLA's",
    both_ula == 0 and both_fla == 1,
)

# %% [markdown]
# ## Figure 3: the fractional difference
#
# Above: the number of terms K at δ = 0.2. Below: δ at K = 20. The wells are about 7 apart.

# %%
ALPHAS = (1.5,) if SMALL else (1.3, 1.6)
TERMS = (2, 50) if SMALL else (2, 10, 50)
DELTAS = (0.05, 0.5) if SMALL else (0.05, 0.5, 2.0)
options = {"drift": "riesz"}
by_terms = {
    alpha: [errors(sample(alpha=alpha, delta=0.2, terms=k, **options)) for k in TERMS]
    for alpha in ALPHAS
}
by_delta = {
    alpha: [errors(sample(alpha=alpha, delta=delta, terms=20, **options)) for delta in DELTAS]
    for alpha in ALPHAS
}
figure, axes = plt.subplots(2, 1, figsize=(6, 6), layout="constrained")
for axis, found, at, name in (
    (axes[0], by_terms, TERMS, "K, at δ = 0.2"),
    (axes[1], by_delta, DELTAS, "δ, at K = 20"),
):
    for alpha, values in found.items():
        mean, error = np.transpose([bias(value) for value in values])
        axis.errorbar(at, mean, error, marker="o", label=f"α = {alpha}")
    axis.set(xlabel=name, ylabel="absolute bias of the mean")
    axis.legend()
axes[1].set(xscale="log")
plt.show()


def falls(found, first, last):
    """Whether the bias falls from one setting to another, for all α together.

    Chains of one number have the same noise, so that differences are taken chain by chain.
    """
    change = [
        np.sign(values[first].mean()) * (values[first] - values[last]) for values in found.values()
    ]
    mean, se = np.mean(change), np.std(np.mean(change, axis=0), ddof=1) / np.sqrt(CHAINS)
    return mean > 2 * se


def shown(found, at):
    return (
        "; ".join(
            f"α = {alpha}: " + ", ".join("{:.2f} ± {:.2f}".format(*bias(value)) for value in values)
            for alpha, values in found.items()
        )
        + f" at {at}"
    )


reproduction.verdict(
    "the bias falls as K grows, at a fixed δ (Fig. 3, top)",
    shown(by_terms, f"K = {TERMS}"),
    falls(by_terms, 0, -1),
)
reproduction.verdict(
    "at a fixed K the bias falls and then rises with δ (Fig. 3, bottom)",
    shown(by_delta, f"δ = {DELTAS}"),
    falls(by_delta, 0, 1) and falls(by_delta, -1, 1),
)
reproduction.picture(figure)

# %% [markdown]
# ## Figure 4: FLA against α
#
# Here the measure is the paper's, the mean over repetitions of the absolute error, in which a chain
# that stays in one well counts in full; at each α the best of two step sizes.

# %%
OF_FLA = (1.5, 2.0) if SMALL else (1.2, 1.4, 1.6, 1.7, 1.8, 1.9, 2.0)


def mean_absolute(alpha, h):
    found = np.abs(errors(sample(alpha=alpha, h=h, thin=int(1 / h))))
    return found.mean(), found.std(ddof=1) / np.sqrt(len(found))


found = {alpha: min(mean_absolute(alpha, h) for h in (0.02, 0.01)) for alpha in OF_FLA}
mean, error = np.transpose(list(found.values()))
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.errorbar(OF_FLA, mean, error, marker="o")
axis.set(xlabel="α", ylabel="mean absolute error of the mean", title="FLA")
plt.show()


def lower(one, other):
    return found[other][0] - found[one][0] > 2 * np.hypot(found[one][1], found[other][1])


best = OF_FLA[int(np.argmin(mean))]
reproduction.verdict(
    "at α = 2 the error is that of one well, and it falls rapidly below (Fig. 4)",
    "; ".join("{:.2f} ± {:.2f}".format(*found[alpha]) + f" at α = {alpha}" for alpha in OF_FLA),
    lower(best, 2.0),
)

# %% [markdown]
# The bias that is left does not vanish with the step size or with more draws: FLA's drift is the
# series above cut off after its first term, and the wells' shares are not the posterior's.

# %%
left = float((fla < 0).mean())
print(f"mass of the left well: FLA (α = 1.7) {left:.3f}, exact {LEFT:.3f}")

# %% [markdown]
# ## Untuned
#
# These are the results without any arguments, with the same number of draws.

# %%
for name, method in (("sg.FLA()", sg.FLA), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    draws = sample(method, tuned=True, draws=DRAWS // 4)
    value = np.abs(errors(draws)).mean()
    print(
        f"{name}: mean absolute error {value:.2f}, "
        f"both wells in {share_of_chains_in_both(draws):.0%} of the chains"
    )

# %%
reproduction.end()
