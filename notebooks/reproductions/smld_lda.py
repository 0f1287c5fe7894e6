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
# # Topics of texts: SMLD and SGRLD
#
# [Hsieh et al. (2018)](https://arxiv.org/abs/1802.10174), section 5.2 and figure 1(b): latent
# Dirichlet allocation (LDA) of 100,000 documents of Wikipedia. Perplexity of held-out documents is
# drawn against the number of documents seen, for SMLD with the exponential replaced by a line
# (SMLD-approximate) and for SGRLD. The paper says
#
# 1. that there is "a clear improvement" of SMLD-approximate over SGRLD at the end, shown for its
#    five best step sizes;
# 2. that it also converges faster;
# 3. that exponentials are "unstable for large-scale problems", which the line is to resolve.
#
# | | the paper | here |
# | --- | --- | --- |
# | texts | Wikipedia | 395 reports of Reuters, and the novel Pride and Prejudice |
# | documents seen | 100,000, each once | 100,000, each many times |
# | batch, topics, α, β | 50, 100, 0.01, 0.0001 (Patterson and Teh, 2013) | 50, 20, 0.1, 0.1 |
# | SGRLD | its best steps, $a(1 + t/1000)^{-0.6}$ | the same on a grid of $a$, and constant steps |
# | seeds | 1 | 3 on the test documents, 1 in the search |
#
# Texts are cut into documents of at most 60 words: 70 % for training, 15 % to choose step sizes,
# 15 % for the test. The small α, β suit texts in which every word is seen often. The topics of a
# batch's words are drawn in 6 Gibbs sweeps, of which the first 2 are burn-in. Perplexity is that of
# document completion: even words give a document's proportions, odd ones are scored, on average
# over the later half of the draws.
#
# SMLD with the exact exponential and collapsed Gibbs sampling of all documents are added. A step
# size $h$ of SGRLD here is ε/2 of its own paper. Appendix H.2 sets SMLD beside figures that
# Ma et al. (2015) printed for SGRHMC on Wikipedia. It does not run SGRHMC, because its
# $\hat B_t$ is not known, and neither do we.

# %%
import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import topics

from datasets import novel, reuters
from pymc.exceptions import SamplingError
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, every, over_seeds

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
reproduction = Reproduction("smld_lda", "Hsieh et al. (2018)", "Figure 1(b): LDA")

ALPHA = BETA = 0.1
TOPICS, LENGTH, BATCH = (5, 20, 20) if SMALL else (20, 60, 50)
# Updates of the search, of the test, between draws; seeds of the test
SEARCH, TEST, THIN, SEEDS = (40, 60, 20, 2) if SMALL else (500, 2000, 20, 3)
GRID = (0.03, 0.3) if SMALL else (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

texts = {"Pride and Prejudice": topics.corpus(*novel(), length=LENGTH)}
if not SMALL:
    doc, word, name = reuters()
    texts[name] = topics.corpus(doc, word, length=LENGTH)
for name, corpus in texts.items():
    print(
        f"{name}: {len(corpus.train)} documents, {(corpus.train >= 0).sum():,} words for training, "
        f"{corpus.size:,} different ones"
    )

# %% [markdown]
# ## Model
#
# Topics are the rows of one Dirichlet variable. The likelihood, in which the topic of each word is
# unknown, is known by an estimate of its gradient: the topics of the batch's words are drawn, and
# the gradient with respect to $\pi_{kw}$ is $n_{kw}/\pi_{kw}$, where $n_{kw}$ counts the words w
# of topic k.


# %%
def model(corpus):
    with pm.Model() as built:
        words = pm.Minibatch(corpus.train, batch_size=BATCH)
        pi = pm.Dirichlet("pi", np.full((TOPICS, corpus.size), BETA))
        gradient = topics.gradient(ALPHA, sweeps=6, burn_in=2)
        sg.GradientPotential("words", gradient, [pi], [words], total_size=len(corpus.train))
    return built


paper = {"thin": THIN, "gradient": "plain", "batches": 1, "backend": "jax"}
mirrored = {"integrator": "euler", "scale": None, **paper}
METHODS = {
    "SMLD-approximate": lambda size: sg.SMLD(step_size=size, exp="linear", **mirrored),
    "SMLD": lambda size: sg.SMLD(step_size=size, **mirrored),
    "SGRLD, constant": lambda size: sg.SGRLD(step_size=size, **paper),
    "SGRLD": None,  # the same with other steps
}
FALLING = {"SGRLD": lambda t: (1 + t / 1000) ** -0.6}


def curve(step, words, updates, seed):
    """Perplexity after every draw, from random topics; NaN for chains that end in an error."""
    size = step.model["pi"].type.shape[1]
    start = np.random.default_rng(seed).dirichlet(np.ones(size), TOPICS)
    try:
        dt = pm.sample(
            step=step, draws=updates // THIN, tune=0, chains=1, random_seed=seed,
            initvals={"pi": start}, model=step.model, **QUIET,
        )  # fmt: skip
    except SamplingError:
        return np.full(updates // THIN, np.nan)
    reproduction.count(updates)
    ends = np.arange(1, updates // THIN + 1)
    return topics.perplexity(dt.posterior["pi"].values[0], words, ALPHA, ends)


# %% [markdown]
# ## Search for step sizes, and the best ones on the test documents

# %%
searched, best, tested, gibbs, low, rivals = {}, {}, {}, {}, {}, {}
for name, corpus in texts.items():
    built, steps = model(corpus), {}
    for method, make in METHODS.items():
        if make:
            size = StepSize()
            with built:
                step = make(size)
        steps[method], size.factor = (step, size), FALLING.get(method, np.ones_like)
        for h in GRID:
            size.h = h
            searched[name, method, h] = curve(step, corpus.validation, SEARCH, seed=0)
        at_end = {h: searched[name, method, h][-1] for h in GRID}
        finite = {h: p for h, p in at_end.items() if np.isfinite(p)}
        best[name, method] = min(finite, key=finite.get)
        low[name, method] = min(finite.values())
        said = ", ".join(f"{p:.4g} (h = {h:g})" for h, p in at_end.items())
        print(f"{name}, {method}, validation: {said}")
    # SGRLD with the better of its kinds of steps
    rivals[name] = min(("SGRLD", "SGRLD, constant"), key=lambda m: low[name, m])
    for method in ("SMLD-approximate", "SMLD", rivals[name]):
        step, size = steps[method]
        size.h, size.factor = best[name, method], FALLING.get(method, np.ones_like)
        curves = [curve(step, corpus.test, TEST, seed=1 + s) for s in range(SEEDS)]
        tested[name, method] = np.array(curves)
        mean, error = over_seeds(tested[name, method][:, -1])
        print(f"{name}, {method}, test, h = {size.h:g}: {mean:.1f} ± {error:.1f}")
    draws = topics.collapsed_gibbs(
        corpus.train, corpus.size, TOPICS, ALPHA, BETA, sweeps=400, thin=20, seed=0
    )
    [gibbs[name]] = topics.perplexity(draws, corpus.test, ALPHA)
    print(f"{name}, Gibbs, test: {gibbs[name]:.1f}")

# %% [markdown]
# Figure 1(b), above on the validation documents, with the five best step sizes of SMLD-approximate
# (blue) and the best one of the others, and below on the test documents, the best step size of each
# from three random starts. The dotted line is Gibbs sampling. The paper's claim: every blue curve
# ends below the red one of SGRLD, and gets there sooner.

# %%
colours = dict(zip(METHODS, ("C0", "C2", "C1", "C3"), strict=True))
figure, axes = plt.subplots(
    2, len(texts), figsize=(5.5 * len(texts), 7), layout="constrained", squeeze=False
)
order = {t: sorted(GRID, key=lambda h: searched[t, "SMLD-approximate", h][-1]) for t in texts}
for (upper, lower), name in zip(axes.T, texts, strict=True):
    for method, colour in colours.items():
        shown = order[name][:5] if method == "SMLD-approximate" else [best[name, method]]
        for i, h in enumerate(shown):
            values = searched[name, method, h]
            seen = BATCH * THIN * np.arange(1, len(values) + 1)
            upper.plot(seen, values, color=colour, alpha=1 - 0.17 * i, label=f"{method}, h = {h:g}")
        values = tested.get((name, method), np.empty((0, TEST // THIN)))
        seen = BATCH * THIN * np.arange(1, values.shape[1] + 1)
        for i, each in enumerate(values):
            lower.plot(seen, each, color=colour, label=None if i else method)
    lower.axhline(gibbs[name], color="k", linestyle=":", label="Gibbs")
    upper.set(title=f"{name}, validation", ylim=(0.9 * gibbs[name], 2.5 * gibbs[name]))
    lower.set(title=f"{name}, test", ylim=(0.9 * gibbs[name], 2.5 * gibbs[name]))
    upper.legend(fontsize="small")
    lower.legend(fontsize="small")
figure.supxlabel("documents seen")
figure.supylabel("perplexity")
reproduction.picture(figure)

# %% [markdown]
# ## With nothing set
#
# Tuning needs a density, which this model does not have. A step method without a step size says so.

# %%
for method in (sg.SMLD, sg.CoRVSGLD):
    call = f"sg.{method.__name__}()"
    with reproduction.untuned(call), model(texts["Pride and Prejudice"]):
        pm.sample(step=method(), draws=1, tune=0, chains=1, **QUIET)

# %% [markdown]
# ## Verdicts
#
# The documents that a method needs are those until its perplexity is that of SGRLD at the end,
# within 1 %. SMLD *needs* the line if it does not run at the best step size of SMLD-approximate.

# %%
gains, sooner, all_five, needed, better, said = [], [], [], [], [], [[] for _ in range(5)]
LINE = "SMLD-approximate"
for name in texts:
    ours, exact, other = (over_seeds(tested[name, m][:, -1]) for m in (LINE, "SMLD", rivals[name]))
    gains.append(beyond(other[0] - ours[0], np.hypot(other[1], ours[1])))
    better.append(beyond(exact[0] - ours[0], np.hypot(exact[1], ours[1])))
    said[0].append(f"{ours[0]:.0f} ± {ours[1]:.0f} against {other[0]:.0f} ± {other[1]:.0f}")
    there = [tested[name, m] <= 1.01 * other[0] for m in (LINE, rivals[name])]
    draws = [np.where(x.any(axis=1), x.argmax(axis=1) + 1, x.shape[1]) for x in there]
    (first, error), (later, spread) = (over_seeds(BATCH * THIN * n) for n in draws)
    sooner.append(beyond(later - first, np.hypot(error, spread)))
    said[1].append(f"{first:,.0f} ± {error:,.0f} documents against {later:,.0f} ± {spread:,.0f}")
    five = [searched[name, LINE, h][-1] for h in order[name][:5]]
    all_five.append(max(five) < low[name, rivals[name]])
    said[2].append(f"{min(five):.0f} to {max(five):.0f} against {low[name, rivals[name]]:.0f}")
    needed.append(not np.isfinite(searched[name, "SMLD", best[name, LINE]][-1]))
    runs = [sum(np.isfinite(searched[name, m, h][-1]) for h in GRID) for m in ("SMLD", LINE)]
    said[3].append(f"{runs[0]} of {len(GRID)} step sizes run, {runs[1]} with the line")
    said[4].append(f"{ours[0]:.0f} ± {ours[1]:.0f} against {exact[0]:.0f} ± {exact[1]:.0f}")
of = [" and ".join(f"{x} ({name})" for x, name in zip(each, texts, strict=True)) for each in said]
reproduction.verdict(
    'that there is "a clear improvement" of SMLD-approximate over SGRLD "in saturation level"',
    f"a test perplexity of {of[0]}",
    every(gains),
    seeds=SEEDS,
)
reproduction.verdict('that there is one "in convergence speed"', of[1], every(sooner), seeds=SEEDS)
reproduction.verdict(
    "that this is so for each of its five best step sizes",
    f"a perplexity of validation documents of {of[2]}",
    all(all_five),
)
reproduction.verdict(
    'that exponentials are "unstable for large-scale problems", so that SMLD needs the line',
    f"with SMLD computed in logarithms {of[3]}",
    any(needed),
)
reproduction.verdict(
    "that SMLD-approximate is the version to use (there because of the instability)",
    f"that it predicts better than SMLD: {of[4]}",
    every(better),
    seeds=SEEDS,
)
reproduction.end()
