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
# [Şimşekli (2017)](https://arxiv.org/abs/1706.03649), Figures 2, 3 and 4. Langevin dynamics stays
# in the well in which it starts. Noise with heavy tails, the α-stable noise of `FLA`, jumps to
# the other one. The paper estimates the mean of the target and reports its bias, over
# repetitions: of its first scheme, a fractional difference of $2K + 1$ terms at distances
# $\delta$ (`drift="riesz"`), against $K$ and $\delta$; and of FLA itself against α.
#
# Three things differ from the paper. Its formula of the potential is lost in its text version; this
# one has two wells of the same kind. Its falling step sizes have constants that are lost, too; here
# step sizes are constant, and a smaller one is tried. Updates are tamed, as
# [the mathematics](../../mathematics.md#fla) says: without it most chains diverge here. The bias
# here is that of the mean over all repetitions, so that it can be told from Monte-Carlo error.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from reproduction import SMALL, Reproduction

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
            step=step, draws=draws, tune=100, chains=CHAINS, cores=1, random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    reproduction.count(CHAINS * (draws + 100) * int(found.sample_stats["thin"].values[0, 0]))
    return found.posterior["x"].values


def bias(draws):
    """Absolute bias of the mean over all chains, and its standard error."""
    found = draws.mean(axis=1) - EXACT
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
    alpha: [bias(sample(alpha=alpha, delta=0.2, terms=k, **options)) for k in TERMS]
    for alpha in ALPHAS
}
by_delta = {
    alpha: [bias(sample(alpha=alpha, delta=delta, terms=20, **options)) for delta in DELTAS]
    for alpha in ALPHAS
}
figure, axes = plt.subplots(2, 1, figsize=(6, 6), layout="constrained")
for axis, found, at, name in (
    (axes[0], by_terms, TERMS, "K, at δ = 0.2"),
    (axes[1], by_delta, DELTAS, "δ, at K = 20"),
):
    for alpha, values in found.items():
        mean, error = np.transpose(values)
        axis.errorbar(at, mean, error, marker="o", label=f"α = {alpha}")
    axis.set(xlabel=name, ylabel="absolute bias of the mean")
    axis.legend()
axes[1].set(xscale="log")
plt.show()


def falls(first, last):
    """Whether the second of two biases is lower by two standard errors."""
    return first[0] - last[0] > 2 * np.hypot(first[1], last[1])


worst = {alpha: (found[0][0], found[-1][0]) for alpha, found in by_terms.items()}
reproduction.verdict(
    "the bias falls as K grows, at a fixed δ (Fig. 3, top)",
    "; ".join(f"{a:.2f} to {b:.2f} at α = {alpha}" for alpha, (a, b) in worst.items())
    + f" from K = {TERMS[0]} to {TERMS[-1]}",
    all(falls(found[0], found[-1]) for found in by_terms.values()),
)
least = {alpha: int(np.argmin([b for b, _ in found])) for alpha, found in by_delta.items()}
reproduction.verdict(
    "at a fixed K the bias falls and then rises with δ (Fig. 3, bottom)",
    "; ".join(
        f"least at δ = {DELTAS[k]} of {DELTAS[0]} to {DELTAS[-1]} for α = {alpha}"
        for alpha, k in least.items()
    ),
    all(
        falls(found[0], found[k]) and falls(found[-1], found[k])
        for (found, k) in zip(by_delta.values(), least.values(), strict=True)
    ),
)

# %% [markdown]
# ## Figure 4: FLA against α
#
# At each α the best of two step sizes, as the paper reports the best of several. At α = 2 all
# chains start between the wells and fall into the nearer one or the other: their means are those
# of wells.

# %%
OF_FLA = (1.5, 2.0) if SMALL else (1.2, 1.4, 1.6, 1.7, 1.8, 1.9, 2.0)
found = {
    alpha: min(bias(sample(alpha=alpha, h=h, thin=int(1 / h))) for h in (0.02, 0.01))
    for alpha in OF_FLA
}
mean, error = np.transpose(list(found.values()))
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.errorbar(OF_FLA, mean, error, marker="o")
axis.set(xlabel="α", ylabel="absolute bias of the mean", title="FLA")
plt.show()

best = OF_FLA[int(np.argmin(mean))]
reproduction.verdict(
    "at α = 2 chains stay in one well, and the bias falls rapidly below (Fig. 4)",
    f"{found[2.0][0]:.2f} at α = 2 and {mean.min():.2f} at α = {best}, its best",
    falls(found[2.0], found[best]),
)
if not SMALL:
    reproduction.verdict(
        "FLA is best between the extremes of α (Fig. 4)",
        f"{found[1.2][0]:.2f} at α = 1.2, {mean.min():.2f} at {best}, {found[1.9][0]:.2f} at 1.9",
        falls(found[1.2], found[best]) or best == 1.2,
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
# What a user gets who passes no arguments, in as many draws.

# %%
for name, method in (("sg.FLA()", sg.FLA), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    draws = sample(method, tuned=True, draws=DRAWS // 4)
    value, error = bias(draws)
    print(
        f"{name}: bias {value:.2f} ± {error:.2f}, "
        f"both wells in {share_of_chains_in_both(draws):.0%} of the chains"
    )

# %%
reproduction.end()
