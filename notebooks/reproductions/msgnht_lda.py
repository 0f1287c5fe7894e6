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
# # Topics of texts: thermostats and SGHMC
#
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), Figure 3 and Table 1: latent Dirichlet
# allocation (LDA) of 765 abstracts with 44,140 words. The multivariate thermostat (mSGNHT) and
# stochastic-gradient HMC (SGHMC), each with the symmetric splitting (S) and with Euler's scheme
# (E), are compared by the perplexity of test documents at three step sizes. The paper says that S
# is consistently better than E, that mSGNHT is significantly better than SGHMC where the step size
# is large, that the gap between S and E is larger for mSGNHT, and that the best results rank as in
# its Table 1, which is printed below.
#
# As in the paper: batches of 5 documents; 30 topics, each the softmax of normal variables of mean
# 0.1 and variance 1; a Dirichlet(0.1) prior of the topics of a document; D = 0.75; the step sizes.
# What the paper does not say, we chose:
#
# - Chains have 12,000 updates, in which the smallest step size covers 6 units of time. Three chains
#   (two at that step size) start at N(0.1, 1), the prior, N(0.1, 0.01), and N(0.1, 1) again.
# - The topics of a batch's words are drawn in 6 Gibbs sweeps, of which the first 2 are burn-in.
# - D is also the friction of SGHMC. SGRLD and Gibbs sampling have a Dirichlet(0.1) prior of the
#   words of a topic. SGRLD has constant steps, and those of its own paper (Patterson and Teh,
#   2013), $a (1 + t/1000)^{-0.6}$. The thermostat with one friction for all parameters (SGNHT) is
#   run beside the others.
#
# What is different: the abstracts are not available. We take 395 reports of Reuters, cut into 1,281
# documents of at most 60 words; words that occur less than ten times are left out. 70 % of the
# documents are for training, 15 % for the choice of step sizes, 15 % for the test. The perplexity
# is that of every second word of a document given the others, whose probabilities are averaged over
# the later half of the draws. It is on another scale than the paper's, so gaps are in per cent.

# %%
import logging

from functools import cache
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import reproduction
import topics

from datasets import reuters
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, over_seeds
from scipy.special import softmax

import pymc_sgmcmc as sg

pytensor.config.floatX = "float32"
logging.getLogger("pymc").setLevel(logging.ERROR)
run = Reproduction("msgnht_lda", "Li et al. (2016)", "Figure 3, Table 1: LDA")

ALPHA = BETA = 0.1
K, LENGTH, BATCH, DRAWS = (5, 20, 5, 6) if SMALL else (30, 60, 5, 60)
STEPS = (1e-2,) if SMALL else (1e-2, 2.5e-3, 5e-4)
UPDATES = 60 if SMALL else 12_000
# Standard deviations of the starts of the chains
STARTS = (1.0, 0.1) if SMALL else (1.0, 0.1, 1.0)
corpus = topics.corpus(*reuters()[:2], length=LENGTH)
words = (corpus.train >= 0).sum()
print(f"{len(corpus.train)} training documents, {words:,} words, {corpus.size:,} different ones")

# %% [markdown]
# ## Model and methods
#
# The likelihood, in which the topic of each word is unknown, is known by an estimate of its
# gradient: the topics of the batch's words are drawn. All chains of a method run at once, as the
# first axis of the variable; each has its own documents in a batch. SGRLD samples the simplexes
# themselves.


# %%
def model(chains, simplex):
    shape = (chains, K, corpus.size)
    with pm.Model() as built:
        words = pm.Minibatch(corpus.train, batch_size=chains * BATCH)
        if simplex:
            variable = pm.Dirichlet("topics", np.full(shape, BETA))
        else:
            variable = pm.Normal("topics", 0.1, 1, shape=shape)
        gradient = topics.gradient(ALPHA, sweeps=6, burn_in=2, softmax=not simplex)
        sg.GradientPotential("words", gradient, [variable], [words], total_size=len(corpus.train))
    return built


papers = {"gradient": "plain", "batches": 1, "backend": "jax"}
thermostat = {"diffusion": 0.75, "thermostat_mass": 1.0, "scale": None, **papers}
hmc = {"friction": 0.75, "scale": None, **papers}
METHODS = {
    "mSGNHT-S": lambda **own: sg.MSGNHT(integrator="ssi", **thermostat, **own),
    "mSGNHT-E": lambda **own: sg.MSGNHT(integrator="euler", **thermostat, **own),
    "SGHMC-S": lambda **own: sg.SGHMC(integrator="ssi", **hmc, **own),
    "SGHMC-E": lambda **own: sg.SGHMC(integrator="euler", **hmc, **own),
    "SGNHT-S": lambda **own: sg.SGNHT(integrator="ssi", **thermostat, **own),
    "SGRLD": lambda **own: sg.SGRLD(**papers, **own),
}


@cache
def step_of(method, chains, thin):
    """A step method, compiled once for all step sizes, and its step size."""
    h = StepSize()
    with model(chains, method == "SGRLD"):
        return reproduction.unmoved(METHODS[method](step_size=h, thin=thin)), h


# %% [markdown]
# ## Chains
#
# The package moves the start of a model by up to 1 in each coordinate; `reproduction.unmoved`
# keeps it. A chain whose numbers are no longer finite has ended. It ends
# all that run with it; then each of them is run alone.


# %%
def draws_of(method, h, factor, starts):
    """For each start, a seed and an sd, the topics of the draws and the updates until the end."""
    step, size = step_of(method, len(starts), UPDATES // DRAWS)
    size.h, size.factor = h, factor
    normals = [np.random.default_rng(i).standard_normal((K, corpus.size)) for i, _ in starts]
    start = np.stack([0.1 + sd * x for x, (_, sd) in zip(normals, starts, strict=True)])
    start = softmax(start, axis=-1) if method == "SGRLD" else start
    dt, taken = reproduction.sample_to_end(
        step, DRAWS, chains=1, random_seed=starts[0][0], initvals={"topics": start}
    )
    if dt is None and len(starts) > 1:
        return [x for one in starts for x in draws_of(method, h, factor, [one])]
    run.count(len(starts) * taken)
    if dt is None:
        return [(None, taken)]
    found = dt.posterior["topics"].values[0].swapaxes(0, 1)
    return [(x if method == "SGRLD" else softmax(x, axis=-1), None) for x in found]


def measure(method, h, factor=np.ones_like):
    """Of each chain: perplexity of validation, that of test on the way, and when it ended."""
    starts = list(enumerate(STARTS))
    starts = starts[:2] if h == 5e-4 or method == "SGNHT-S" else starts
    # One thermostat belongs to one chain
    groups = [[s] for s in starts] if method == "SGNHT-S" else [starts]
    chains = [chain for group in groups for chain in draws_of(method, h, factor, group)]
    validation, test = np.full(len(starts), np.nan), np.full((len(starts), len(ENDS)), np.nan)
    for i, (pi, end) in enumerate(chains):
        if end is None:
            [validation[i]] = topics.perplexity(pi[1::2], corpus.validation, ALPHA)
            test[i] = topics.perplexity(pi, corpus.test, ALPHA, ENDS)
    ended = [end for _, end in chains if end is not None]
    what = f"{method:9} h = {h:g}{'' if factor is np.ones_like else ', decreasing'}"
    print(f"{what}: test {test[:, -1].round()}, ended after {ended} updates", flush=True)
    return validation, test, ended


def decreasing(t):
    return (1 + t / 1000) ** -0.6


ENDS = np.unique(np.linspace(1, DRAWS, 12).astype(int))
PAPERS, N = ("mSGNHT-S", "mSGNHT-E", "SGHMC-S", "SGHMC-E"), len(STARTS)
found = {(method, h): measure(method, h) for method in PAPERS for h in STEPS}
found |= {(method, STEPS[0]): measure(method, STEPS[0]) for method in ("SGNHT-S", "SGRLD")}
found |= {("SGRLD", f"{a:g}, decreasing"): measure("SGRLD", a, decreasing) for a in (0.04, 0.01)}
sizes = corpus.train, corpus.size, K, ALPHA, BETA
gibbs = [topics.collapsed_gibbs(*sizes, sweeps=400, thin=20, seed=seed) for seed in range(N)]
gibbs = np.array([topics.perplexity(draws, corpus.test, ALPHA)[0] for draws in gibbs])

# %% [markdown]
# ## Figure 3
#
# Where a line is missing, a chain ended before its last update.

# %%
figure, axes = plt.subplots(
    1, len(STEPS), figsize=(4 * len(STEPS), 3.6), layout="constrained", sharey=True, squeeze=False
)
for axis, h in zip(axes[0], STEPS, strict=True):
    for i, method in enumerate(PAPERS):
        _, test, ended = found[method, h]
        axis.plot(
            BATCH * UPDATES // DRAWS * ENDS, test.mean(axis=0), "--" if i % 2 else "-",
            color=f"C{i // 2}",
            label=method + (f": ends after {min(ended):,} updates" if ended else ""),
        )  # fmt: skip
    axis.axhline(gibbs.mean(), color="black", linestyle=":", label="Gibbs sampling")
    axis.set(title=f"h = {h:g}", xlabel="documents seen", yscale="log")
    axis.legend(fontsize=8)
axes[0, 0].set_ylabel("test perplexity")
figure.suptitle("Figure 3: learning curves of LDA, means of all chains")
plt.show()
run.picture(figure)

# %% [markdown]
# ## Table 1
#
# The step size of each method is the best one on the validation documents.

# %%
PRINTED = {
    "Gibbs": 907.84, "mSGNHT-S": 939.67, "mSGNHT-E": 960.56, "SGHMC-S": 1004.73,
    "SGHMC-E": 1017.51, "SGRLD": 1154.68, "SGNHT-S": np.nan,
}  # fmt: skip
best, table = {"Gibbs": "-"}, {"Gibbs": gibbs}
for method in METHODS:
    steps = [h for m, h in found if m == method]
    # NaN, of chains that ended, sorts last
    best[method] = steps[int(np.argsort([found[method, h][0].mean() for h in steps])[0])]
    table[method] = found[method, best[method]][1][:, -1]
print(f"{'':9} {'paper':>8} {'here':>8}")
for method, printed in PRINTED.items():
    mean, error = over_seeds(table[method])
    print(f"{method:9} {printed:8.2f} {mean:8.1f} ± {error:.1f}  h = {best[method]}")

# %% [markdown]
# ## Verdicts
#
# What is seen: S and E cannot be told apart wherever E works, and E does not work at h = 0.01,
# where its thermostat makes 1 - hξ less than -1. There mSGNHT-S is far better than SGHMC, which
# does not absorb the noise of batches of 5. With a quarter of that step size SGHMC is about as
# good as mSGNHT at its best: what mSGNHT has is a wider range of step sizes. SGRLD with the
# decreasing steps of its own paper is the best of the stochastic-gradient methods.
#
# Gaps are taken chain by chain; chains of one number have the same start. A gap holds if it is
# above 0 by two standard errors (widened as Student's t is, for few chains), and does not hold if
# it is below 0, or below the paper's gap, by as much. A chain that ends counts as worse than one
# that does not.


# %%
def gap(a, b):
    """By how many per cent b is above a, the standard error, and that widened for few chains."""
    n = min(len(a), len(b))
    mean, error = over_seeds(100 * np.log(b[:n] / a[:n]))
    return mean, error, reproduction.of_few(error, n)


def judge(says, a, b, steps):
    """Whether method a is better than b at all these step sizes."""
    seen, holds = [], []
    for h in steps:
        (_, ours, end_a), (_, other, end_b) = found[a, h], found[b, h]
        mean, error, wide = gap(ours[:, -1], other[:, -1])
        said = [f"{m} ends after {', '.join(map(str, e))} updates"
                for m, e in ((a, end_a), (b, end_b)) if e]  # fmt: skip
        said = said or [f"{b} above {a} by {mean:.1f} ± {error:.1f} %"]
        seen.append(f"h = {h:g}: {', '.join(said)}")
        holds.append(not end_a if end_a or end_b else beyond(mean, wide))
    together = False if False in holds else None if None in holds else True
    run.verdict(says, "; ".join(seen), together, seeds=min(len(found[a, h][0]) for h in steps))


for m in ("mSGNHT", "SGHMC"):
    says = f"that the splitting is consistently better than Euler's scheme ({m}, Figure 3)"
    judge(says, f"{m}-S", f"{m}-E", STEPS)
for i in "SE":
    says = f"that mSGNHT-{i} significantly outperforms SGHMC-{i} when h is large (Figure 3)"
    judge(says, f"mSGNHT-{i}", f"SGHMC-{i}", STEPS[:1])
order = list(PRINTED)[:6]
gaps = {}
for a, b in (*pairwise(order), ("mSGNHT-S", "SGRLD")):
    gaps[a, b] = mean, error, wide = gap(table[a], table[b])
    printed = 100 * np.log(PRINTED[b] / PRINTED[a])
    run.verdict(
        f"that {a} has a lower perplexity than {b}, by {printed:.1f} % (Table 1)",
        f"{b} above {a} by {mean:.1f} ± {error:.1f} % ({table[b].mean():.0f}, "
        f"{table[a].mean():.0f})", reproduction.gap_holds(mean, wide, printed), seeds=N,
    )  # fmt: skip
(mean, *errors), (less, *others) = gaps["mSGNHT-S", "mSGNHT-E"], gaps["SGHMC-S", "SGHMC-E"]
mean, (error, wide) = mean - less, np.hypot(errors, others)
run.verdict("that the gap between S and E is larger for mSGNHT than for SGHMC (Table 1)",
            f"larger by {mean:.1f} ± {error:.1f} %", beyond(mean, wide), seeds=N)  # fmt: skip
mean, error, wide = gap(table["mSGNHT-S"], table["SGNHT-S"])
run.verdict(
    "that mSGNHT provides more adaptivity than SGNHT (section 1)",
    f"SGNHT-S above mSGNHT-S by {mean:.1f} ± {error:.1f} %", beyond(mean, wide), seeds=2,
)  # fmt: skip

# %% [markdown]
# ## With nothing set
#
# Where only a gradient is known, a step method asks for a step size. But the paper's model can be
# written out, with the topics of each document as variables and those of its words summed over.

# %%
documents = corpus.train[:12] if SMALL else corpus.train
counts = np.stack([np.bincount(d[d >= 0], minlength=corpus.size) for d in documents])
with pm.Model() as whole:
    phi = pm.Normal("phi", 0.1, 1, shape=(K, corpus.size))
    of_documents = pm.Dirichlet("of_documents", np.full((len(counts), K), ALPHA))
    p = of_documents @ pt.special.softmax(phi, axis=1)
    pm.Multinomial("words", counts.sum(axis=1), p, observed=counts)
draws, ours = 5 if SMALL else 100, table["mSGNHT-S"]
for call, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    with run.untuned(call) as gives:
        with whole:
            dt = pm.sample(step=method(), draws=draws, tune=draws, chains=1, random_seed=1, **QUIET)
        pi = softmax(dt.posterior["phi"].values[0, ::5], axis=-1)
        [seen] = topics.perplexity(pi, corpus.test, ALPHA)
        gives(
            f"a perplexity of {seen:.0f}, where the best mSGNHT-S has {ours.mean():.0f}",
            seen < ours.max(),
        )
run.end()
