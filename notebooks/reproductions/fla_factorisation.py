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
# # FLA on a matrix of ratings
#
# [Şimşekli (2017)](https://arxiv.org/abs/1706.03649), Figure 5 and Section 7 of its supplement:
# probabilistic matrix factorisation of film ratings, sampled with noise of heavy tails (`FLA`)
# from batches. The measure is the error (RMSE) on ratings that were held out. The paper says
#
# 1. that FLA converges faster as α decreases from 2, which is SGLD, down to some value;
# 2. that below that value the jumps get very large and the result gets worse;
# 3. that FLA is more robust to the size of the batches than SGLD.
#
# The paper's text version lost its formulas and most of its numbers: both values of α, the
# constants of the step sizes $(a/n)^b$ at update n, the rank, the prior and the size of a batch.
# So the α, a and b here are ours:
#
# - **Model.** Factors W and H are standard normal, of rank 10. Ratings less their mean are normal
#   around the products, with an sd of 1.
# - **Start.** All coordinates are standard normal, another start for each seed.
# - **Steps.** b = 0.6, and a from $10^{-7}$ to $10^{-3}$. The paper reports the best a.
#   We compare at equal a, too, since an α with another a is another experiment.
# - **Batches.** A twentieth of the training data, and a tenth, a fiftieth and a 250th for claim 3.
# - **Predictions** are averaged over the later half of the draws so far.
# - **Data.** MovieLens 100K (943 × 1,682), split 80:10:10, and a million made ratings of the shape
#   of MovieLens 1M (6,040 × 3,706), which we may not ship. The paper has 1M, 10M and 20M.
# - **Taming.** Updates are tamed, as the documentation of `FLA` says; the paper's are not. A run
#   without it is below.

# %%
import logging

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from datasets import ratings
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, over_seeds

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
run = Reproduction("fla_factorisation", "Şimşekli (2017)", "Figure 5: matrix factorisation")
RANK, POWER, THIN = 3 if SMALL else 10, 0.6, 20
ITERATIONS, ITERATIONS_1M = (100, 40) if SMALL else (2000, 600)
SEEDS = (1, 2) if SMALL else (1, 2, 3)
ALPHAS = (2.0, 1.8) if SMALL else (2.0, 1.9, 1.8, 1.6)
GRID = (1e-7, 1e-4) if SMALL else (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


def split(user, item, rating):
    """The data's parts, less the mean of the training ratings."""
    order = np.random.default_rng(0).permutation(len(rating))
    parts = np.split(order, [8 * len(order) // 10, 9 * len(order) // 10])
    centred = rating - rating[parts[0]].mean()
    user, item = user.astype("int32"), item.astype("int32")
    train, valid, test = (
        SimpleNamespace(user=user[p], item=item[p], rating=centred[p]) for p in parts
    )
    return SimpleNamespace(
        train=train, valid=valid, test=test, users=user.max() + 1, items=item.max() + 1
    )


def made(users, items, count):
    """Ratings of 1 to 5 of a random factorisation; some films and users have many."""
    rng = np.random.default_rng(0)
    often = [
        weights / weights.sum() for weights in (rng.gamma(0.7, size=n) for n in (users, items))
    ]
    cells = np.unique(
        rng.choice(users, 2 * count, p=often[0]) * items + rng.choice(items, 2 * count, p=often[1])
    )
    user, item = np.divmod(rng.permutation(cells)[:count], items)
    taste, film = 0.45 * rng.normal(size=(users, RANK)), rng.normal(size=(items, RANK))
    mean = 3.6 + 0.5 * np.sum(taste[user] * film[item], axis=1)
    return user, item, np.clip(np.round(mean + 0.9 * rng.normal(size=len(user))), 1, 5)


# %% [markdown]
# ## Model and sampler
#
# One step method is compiled for each α; its a can be set between runs.


# %%
def model(data, batches=20):
    rows = data.train
    with pm.Model() as built:
        u, i, x = pm.Minibatch(
            rows.user, rows.item, rows.rating, batch_size=len(rows.user) // batches
        )
        W = pm.Normal("W", shape=(data.users, RANK))
        H = pm.Normal("H", shape=(data.items, RANK))
        mean = (W[u] * H[i]).sum(axis=-1)
        pm.Normal("x", mean, 1, observed=x, total_size=len(rows.user))
    return built


def sampler(data, alpha, *, batches=20, iterations=ITERATIONS, **options):
    """A function of a and a seed that gives the test and the validation RMSE after each draw."""
    h = StepSize(factor=lambda t: (1 + t) ** -POWER)
    with model(data, batches) as built:
        step = sg.FLA(
            alpha=alpha, step_size=h, thin=THIN, scale=None, gradient="plain", batches=1,
            batch="random", backend="jax", **options,
        )  # fmt: skip

    def chain(a, seed):
        h.h = a**POWER
        rng = np.random.default_rng(seed)
        start = {
            name: rng.normal(size=(n, RANK)) for name, n in (("W", data.users), ("H", data.items))
        }
        with built, np.errstate(all="ignore"):
            try:
                dt = pm.sample(
                    step=step, draws=iterations // THIN, tune=0, chains=1, random_seed=seed,
                    initvals=start, **QUIET,
                )  # fmt: skip
            except pm.exceptions.SamplingError:
                return SimpleNamespace(test=np.full(iterations // THIN, np.inf), valid=np.inf)
        run.count(iterations)
        return SimpleNamespace(
            test=curve(dt.posterior, data.test), valid=curve(dt.posterior, data.valid)[-1]
        )

    return chain


def curve(posterior, rows):
    """RMSE of the predictions after each draw."""
    W, H = posterior["W"].values[0], posterior["H"].values[0]
    each = np.array(
        [(w[rows.user] * h[rows.item]).sum(1) for w, h in zip(W, H, strict=True)], dtype="float32"
    )
    total = np.cumsum(np.vstack([np.zeros_like(each[:1]), each]), axis=0, dtype="float64")
    ends = np.arange(1, len(each) + 1)
    begins = ends // 2
    mean = (total[ends] - total[begins]) / (ends - begins)[:, None]
    error = np.sqrt(np.mean((mean - rows.rating) ** 2, axis=1))
    # Ratings lie between 1 and 5: a chain that is this far off has left them
    return np.where(error < 100, error, np.inf)


# %% [markdown]
# ## MovieLens 100K: every α at every a
#
# The test RMSE at the end of one chain, then of all seeds at the least a and at the best a of each
# α, by the RMSE on validation data.

# %%
data = split(*ratings()[:3])
constant = np.sqrt(np.mean(data.test.rating**2))
samplers = {alpha: sampler(data, alpha) for alpha in ALPHAS}
found, best = {}, {}
for alpha, chain in samplers.items():
    for a in GRID:
        found[alpha, a] = [chain(a, SEEDS[0])]
    best[alpha] = min(GRID, key=lambda a: found[alpha, a][0].valid)
    print(
        f"α = {alpha:g}: "
        + ", ".join(f"{found[alpha, a][0].test[-1]:.3f} (a = {a:g})" for a in GRID),
        flush=True,
    )
EQUAL = (GRID[0], best[2.0])
for alpha, chain in samplers.items():
    for a in dict.fromkeys((*EQUAL, best[alpha])):
        found[alpha, a] += [chain(a, seed) for seed in SEEDS[1:]]


def ends(alpha, a):
    """The test RMSE at the end, of each seed."""
    return np.array([chain.test[-1] for chain in found[alpha, a]])


def shown(values):
    if not np.isfinite(values).all():
        return "a chain that diverges"
    return "{:.3f} ± {:.3f}".format(*over_seeds(values))


def less(one, other):
    """Whether one RMSE is less than another, by pairs of seeds."""
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return (
            bool(np.isfinite(one).all())
            if np.isfinite(one).all() != np.isfinite(other).all()
            else None
        )
    return beyond(*over_seeds(other - one))


def together(verdicts):
    return False if False in verdicts else None if None in verdicts else True


def listed(values):
    return "; ".join(f"{shown(v)} (α = {alpha:g})" for alpha, v in values.items())


down = [alpha for alpha in ALPHAS if 1.8 <= alpha < 2]
for a, name in zip(EQUAL, ("the least a", "the best a of α = 2"), strict=True):
    run.verdict(
        f"that convergence is faster as α decreases from 2 (Fig. 5), here at an equal a, {name}",
        f"at a = {a:g} a test RMSE after {ITERATIONS:,} updates of "
        + listed({alpha: ends(alpha, a) for alpha in ALPHAS}),
        together([less(ends(alpha, a), ends(2.0, a)) for alpha in down]),
        seeds=len(SEEDS),
    )
of_best = {alpha: ends(alpha, best[alpha]) for alpha in ALPHAS}
run.verdict(
    "that FLA converges faster than SGLD when each has its best a (Fig. 5)",
    f"after {ITERATIONS:,} updates "
    + listed(of_best)
    + f", with a = {', '.join(f'{best[alpha]:g}' for alpha in ALPHAS)}; the mean rating alone "
    f"gives {constant:.3f}",
    together([less(of_best[alpha], of_best[2.0]) for alpha in down]),
    seeds=len(SEEDS),
)
if 1.6 in ALPHAS:
    learnt = max(of_best[1.8].mean(), of_best[2.0].mean()) < constant
    run.verdict(
        "that performance degrades below some α, since the jumps become very large (Fig. 5)",
        f"{shown(of_best[1.6])} at α = 1.6 against {shown(of_best[1.8])} at 1.8"
        + ("" if learnt else ", neither of which is better than the mean rating"),
        less(of_best[1.8], of_best[1.6]) if learnt else None,
        seeds=len(SEEDS),
    )

# %% [markdown]
# At a small a the drift decides, and FLA's has the factor $c_\alpha$: 1, 1.02, 1.10 for α = 2, 1.8,
# 1.6. FLA is then faster by that factor, and so is SGLD with a greater a. At the a that is
# best for SGLD, jumps decide: the largest of d stable numbers grows like $d^{1/\alpha}$, and there
# are 26,250 coordinates.
#
# ## Without taming
#
# The paper's updates as they are, one chain of each α below 2 at its best a.

# %%
for alpha in ALPHAS[1:]:
    end = sampler(data, alpha, largest_drift=None, largest_jump=None)(best[alpha], 1).test[-1]
    said = f"test RMSE {end:.3f}" if np.isfinite(end) else "diverges"
    print(f"α = {alpha:g}, a = {best[alpha]:g}: {said}")

# %% [markdown]
# ## The shape of MovieLens 1M
#
# A million made ratings, two seeds, at two a.

# %%
large = split(*made(*((60, 40, 1000) if SMALL else (6040, 3706, 1_000_000))))
GRID_1M, SEEDS_1M = (GRID[:1], SEEDS[:1]) if SMALL else ((1e-7, 1e-6), SEEDS[:2])
found_1m = {}
for alpha in ALPHAS[:3]:
    chain = sampler(large, alpha, iterations=ITERATIONS_1M)
    for a in GRID_1M:
        found_1m[alpha, a] = np.array([chain(a, seed).test for seed in SEEDS_1M])
if not SMALL:
    for a in GRID_1M:
        of = {alpha: found_1m[alpha, a][:, -1] for alpha in ALPHAS[:3]}
        run.verdict(
            "that convergence is faster as α decreases from 2 (Fig. 5), here on made ratings of "
            "the shape of MovieLens 1M",
            f"at a = {a:g} a test RMSE after {ITERATIONS_1M:,} updates of "
            + listed(of)
            + f"; the mean rating alone gives {large.test.rating.std():.3f}",
            together([less(of[alpha], of[2.0]) for alpha in down]),
            seeds=len(SEEDS_1M),
        )

# %% [markdown]
# ## Section 7 of the supplement: the size of the batches
#
# The same a for both α and all batches: the best of α = 1.8.

# %%
PARTS = (10, 50) if SMALL else (10, 50, 250)
by_batch = {
    alpha: {
        parts: np.array([sampled(best[1.8], seed).test[-1] for seed in SEEDS])
        for parts in PARTS
        for sampled in [sampler(data, alpha, batches=parts)]
    }
    for alpha in (2.0, 1.8)
}
loss = {alpha: of[PARTS[-1]] - of[PARTS[0]] for alpha, of in by_batch.items()}
run.verdict(
    "that FLA is more robust to the size of the batches than SGLD (supplement, Section 7)",
    f"at a = {best[1.8]:g} "
    + "; ".join(
        f"α = {alpha:g}: " + ", ".join(f"{shown(v)} (N/{parts})" for parts, v in of.items())
        for alpha, of in by_batch.items()
    ),
    less(loss[1.8], loss[2.0]),
    seeds=len(SEEDS),
)

# %% [markdown]
# ## The picture
#
# As Figure 5: test RMSE against the number of updates, one panel for each data set and choice of a.

# %%
figure, axes = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
updates = THIN * np.arange(1, ITERATIONS // THIN + 1)
panels = [
    (axes[0, 0], {alpha: best[alpha] for alpha in ALPHAS}, "each α with its best a"),
    (axes[0, 1], dict.fromkeys(ALPHAS, EQUAL[0]), f"a = {EQUAL[0]:g} for all"),
    (axes[1, 0], dict.fromkeys(ALPHAS, EQUAL[1]), f"a = {EQUAL[1]:g} for all"),
]
for axis, of, title in panels:
    for alpha, a in of.items():
        curves = np.array([chain.test for chain in found[alpha, a]])
        label = f"α = {alpha:g}" + (f", a = {a:g}" if title.startswith("each") else "")
        axis.plot(updates, curves.mean(axis=0), label=label)
    axis.axhline(constant, color="grey", ls=":", label="mean rating alone")
    axis.set(title=f"Fig. 5, MovieLens 100K: {title}", ylim=(0.8, 3.6))
for (alpha, a), curves in found_1m.items():
    style = {"ls": "-" if a == GRID_1M[0] else "--", "color": f"C{ALPHAS.index(alpha)}"}
    axes[1, 1].plot(
        updates[: curves.shape[1]], curves.mean(0), **style, label=f"α = {alpha:g}, a = {a:g}"
    )
axes[1, 1].set(title="Fig. 5, made ratings of the shape of 1M")
for axis in axes.flat:
    axis.set(xlabel="update", ylabel="test RMSE")
    axis.legend(fontsize=8)
plt.show()
run.picture(figure)

# %% [markdown]
# ## With nothing set
#
# Both methods choose step size, whitening and batches themselves, on the model above.

# %%
for name, method in (("sg.CoRVSGLD()", sg.CoRVSGLD), ("sg.MSGNHT()", sg.MSGNHT)):
    with run.untuned(name) as gives:
        with model(data):
            dt = pm.sample(
                step=method(), draws=10 if SMALL else 100, tune=10 if SMALL else 100, chains=1,
                random_seed=1, **QUIET,
            )  # fmt: skip
        run.count(dt.sample_stats["thin"].sum())
        end = curve(dt.posterior, data.test)[-1]
        best = min(v.mean() for v in of_best.values())
        gives(
            f"a test RMSE of {end:.3f} with {int(dt.sample_stats['thin'].values[0, 0])} updates "
            f"for each draw (the mean rating: {constant:.3f}, the best above: {best:.3f})",
            end < constant and end < best + 0.02,
        )
run.end()
