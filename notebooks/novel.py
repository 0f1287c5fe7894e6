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
# # Topics of a novel
#
# What is *Pride and Prejudice* about, and where? A topic model finds out by itself
# which words go together, and how much of each chapter belongs to which topic. Its
# unknowns are probabilities that sum to one, tens of thousands of them, and `SMLD` was
# made for those: mirrored Langevin dynamics for simplexes, with gradients of a thousand
# words at a time. You need to know PyMC and nothing else. It takes 15 minutes.

# %%
import logging
import os
import time

from multiprocessing import get_all_start_methods
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from scipy.optimize import linear_sum_assignment

import pymc_sgmcmc as sg

# The tests run a small version
SMALL = bool(os.environ.get("SMALL"))
TOPICS, DRAWS, TUNE = (8, 100, 30) if SMALL else (20, 1000, 100)
rng = np.random.default_rng(0)

# %% [markdown]
# ## Data
#
# The 61 chapters without their frequent words (*the*, *and*, …) and their rare ones:
# 32,877 tokens of 1,495 different words, each token with the number of its chapter and
# of its word. A fifth of the tokens of every chapter is put aside, to see later how
# well the model predicts them.

# %%
file = np.load("../tests/data/prideprejudice_chapter.npz")
chapter, word = file["doc"].astype("int32"), file["word"].astype("int32")
vocabulary = Path("../tests/data/prideprejudice_words.txt").read_text().split()
chapters = np.arange(1, chapter.max() + 2)

held_out = np.zeros(len(word), dtype=bool)
for each in range(len(chapters)):
    tokens = rng.permutation(np.flatnonzero(chapter == each))
    held_out[tokens[: len(tokens) // 5]] = True
N = int((~held_out).sum())
print(f"{N:,} tokens to learn from, {held_out.sum():,} put aside")
print(" ".join(vocabulary[w] for w in word[:20]), "…")

# %% [markdown]
# ## Model
#
# Latent Dirichlet allocation. Chapter $d$ has shares $\theta_d$ of the topics, topic
# $k$ has probabilities $\varphi_k$ of the words, and each token is of a topic that
# nobody knows. That topic is summed out:
#
# $$p(\text{word } w \text{ in chapter } d) = \sum_k \theta_{dk}\, \varphi_{kw}.$$
#
# The priors, Dirichlet(0.1), say that a chapter has few topics and a topic few words.
# The likelihood is a `pm.CustomDist` that is handed the probability of the very words
# of the batch. (`pm.Categorical` with `theta[d] @ phi` is the same model. It would
# compute the probabilities of all 1,495 words for each token, to use one of them.)

# %%
coords = {"chapter": chapters, "topic": np.arange(TOPICS), "word": vocabulary}


def log_probability(_, probability):
    return pm.math.log(probability)


with pm.Model(coords=coords) as model:
    d, w = pm.Minibatch(chapter[~held_out], word[~held_out], batch_size=1000)
    theta = pm.Dirichlet("theta", np.full(TOPICS, 0.1), dims=("chapter", "topic"))
    phi = pm.Dirichlet("phi", np.full(len(vocabulary), 0.1), dims=("topic", "word"))
    probability = (theta[d] * phi.T[w]).sum(axis=-1)
    pm.CustomDist(
        "token",
        probability,
        logp=log_probability,
        observed=w,
        dtype="int32",
        total_size=N,
    )

# %% [markdown]
# ## Sampling
#
# NUTS would need a gradient of the whole book for each of its many steps. Here each
# update looks at batches, and there is nothing to tune by hand: each chain finds the
# scale of every coordinate, its step size, and how many batches to average. R-hat of
# 31,000 parameters takes longer than the chains, and we ask for it below where it means
# something.

# %%
logging.getLogger("pymc").setLevel(logging.ERROR)
# Where processes are not forked, a program needs `if __name__ == "__main__":` to start
# some
fork = "fork" in get_all_start_methods()
options = {"cores": 2, "mp_ctx": "fork"} if fork else {"cores": 1}
start = time.perf_counter()
with model:
    dt = pm.sample(
        draws=DRAWS,
        tune=TUNE,
        chains=2,
        step=sg.SMLD(),
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
        **options,
    )
print(f"{sum(x[0, 0].size for x in dt.posterior.values()):,} probabilities")
print(f"{time.perf_counter() - start:.0f} seconds")

# %% [markdown]
# ## Do the chains agree?
#
# Topics have no numbers of their own: what one chain calls topic 3 the other may call
# topic 7, and the posterior is the same for every numbering. So R-hat of a single
# parameter says nothing yet. We give the topics of the second chain the numbers of
# those of the first that they are most like.

# %%
mean = dt.posterior["phi"].mean("draw").values
likeness = np.sqrt(mean[0]) @ np.sqrt(mean[1]).T
_, order = linear_sum_assignment(-likeness)
orders = xr.DataArray(
    [np.arange(TOPICS), order],
    dims=("chain", "topic"),
    coords={"chain": dt.posterior["chain"]},
)
matched = xr.concat(
    [
        dt.posterior.to_dataset().sel(chain=[c]).isel(topic=orders.sel(chain=c).values)
        .assign_coords(topic=coords["topic"])
        for c in dt.posterior["chain"].values
    ],
    dim="chain",
)  # fmt: skip

agreement = pd.Series(likeness[np.arange(TOPICS), order], name="likeness")
agreement.round(2)

# %% [markdown]
# The likeness of two topics is 1 where they are the same. Some topics are found by both
# chains, others split or join: a topic model has many explanations of one book that are
# about equally good, and no sampler visits all of them. Look at what both chains say,
# and at predictions, which need no numbers.

# %% [markdown]
# ## The topics
#
# The words that tell most about a topic of the first chain: those with the largest
# $\varphi_{kw} \log(\varphi_{kw} / \bar\varphi_w)$, where $\bar\varphi_w$ is the mean
# over topics. The topics that fill most of the book come first.

# %%
shares = matched["theta"].sel(chain=0)
length = xr.DataArray(
    np.bincount(chapter), dims="chapter", coords={"chapter": chapters}
)
of_book = (shares.mean("draw") * length).sum("chapter") / length.sum()
largest = of_book.sortby(-of_book)["topic"].values

weights = mean[0]
telling = weights * np.log(weights / weights.mean(axis=0))
top = [[vocabulary[w] for w in np.argsort(-telling[k])[:8]] for k in largest]
table = pd.DataFrame({"share": of_book.sel(topic=largest).round(3)}, index=largest)
table["words"] = [", ".join(row) for row in top]
# A name of its own: pandas would draw one
table.style.set_uuid("topics").set_properties(**{"text-align": "left"})

# %% [markdown]
# ## Where in the book
#
# The share of some topics in each chapter, with 89 % intervals: where one token of ten
# is of a topic, a chapter of 400 tokens says so only roughly. That is what the
# posterior has and a point estimate has not.

# %%
spread = (shares.mean("draw") * (1 - shares.mean("draw"))).sum("chapter")
varied = shares.mean("draw").std("chapter")
shown = varied.sortby(-varied)["topic"].values[:4]
low, middle, high = shares.quantile([0.055, 0.5, 0.945], "draw")
figure, axes = plt.subplots(4, 1, figsize=(10, 8), sharex=True, layout="constrained")
for k, axis, colour in zip(
    shown, axes, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=True
):
    axis.fill_between(
        chapters,
        low.sel(topic=k),
        high.sel(topic=k),
        color=colour,
        alpha=0.3,
        step="mid",
        lw=0,
    )
    axis.step(chapters, middle.sel(topic=k), where="mid", color=colour)
    axis.set(ylim=(0, None), ylabel="share", xlim=(1, len(chapters)))
    words_of = top[list(largest).index(k)]
    axis.set_title(f"topic {k}: " + ", ".join(words_of), loc="left", fontsize=10)
label = axes[-1].set_xlabel("chapter")

# %% [markdown]
# ## Predictions
#
# In the ordinary PyMC way: a model with variables of the same names, rows as `pm.Data`,
# and `pm.sample_posterior_predictive`. First the probability of every token that was
# put aside.

# %%
tokens = {"d": chapter[held_out], "w": word[held_out]}
with pm.Model(coords=coords) as predictive:
    theta = pm.Dirichlet("theta", np.full(TOPICS, 0.1), dims=("chapter", "topic"))
    phi = pm.Dirichlet("phi", np.full(len(vocabulary), 0.1), dims=("topic", "word"))
    d, w = (pm.Data(name, rows) for name, rows in tokens.items())
    pm.Deterministic("probability", (theta[d] * phi.T[w]).sum(axis=-1))
    pm.Categorical("next", p=theta[d] @ phi)

thinned = dt.sel(draw=slice(None, None, 4))
with predictive:
    found = pm.sample_posterior_predictive(
        thinned, var_names=["probability"], random_seed=1, progressbar=False
    ).posterior_predictive["probability"]

# %% [markdown]
# The perplexity is the number of words among which the model hesitates,
# $e^{-\overline{\log p}}$ over the tokens put aside: lower is better. The posterior
# mean of the probabilities is a far better prediction than any single draw, and both
# chains together are better than one. Beside them a model without topics, in which
# every chapter has the same words.


# %%
def perplexity(probability):
    return float(np.exp(-np.log(probability).mean()))


counts = np.bincount(word[~held_out], minlength=len(vocabulary)) + 0.1
pd.Series({
    "no topics": perplexity((counts / counts.sum())[word[held_out]]),
    "one draw": perplexity(found[0, -1]),
    "one chain": perplexity(found[0].mean("draw")),
    "both chains": perplexity(found.mean(["chain", "draw"])),
}, name="perplexity").round(0)  # fmt: skip

# %% [markdown]
# With other rows the same model predicts something else. What might the next words of
# some chapters be? In one Mr Collins proposes (19), in another Elizabeth reads Darcy's
# letter (35), in the last one everybody is married (61).

# %%
asked = [19, 35, 61]
with predictive:
    rows = np.repeat(np.array(asked, dtype="int32") - 1, 12)
    pm.set_data({"d": rows, "w": np.zeros_like(rows)})
    drawn = pm.sample_posterior_predictive(
        thinned.sel(chain=[0], draw=[thinned["posterior/draw"].values[-1]]),
        var_names=["next"],
        random_seed=2,
        progressbar=False,
    ).posterior_predictive["next"]
for number, row in zip(asked, drawn.values.reshape(len(asked), -1), strict=True):
    print(f"chapter {number}:", " ".join(vocabulary[w] for w in row))

# %% [markdown]
# ## A new text
#
# Of a text that is not in the book, topics are as they are and only the shares are
# unknown: few parameters, and PyMC's own sampler is the right one. The words of the
# text are data again.

# %%
texts = {
    "a visit": "Mr Collins praised Lady Catherine, Rosings, the dinner and her "
    "ladyship's daughter",
    "an elopement": "Lydia is gone with Wickham, my uncle has written from London, "
    "my poor father",
}


def numbers(text):
    known = {name: i for i, name in enumerate(vocabulary)}
    tokens = text.lower().replace(",", "").split()
    return np.array([known[t] for t in tokens if t in known], dtype="int32")


with pm.Model(coords={"topic": coords["topic"]}) as new_text:
    words = pm.Data("words", numbers(texts["a visit"]))
    share = pm.Dirichlet("share", np.full(TOPICS, 0.1), dims="topic")
    probability = (share * pm.math.constant(mean[0].T)[words]).sum(axis=-1)
    pm.CustomDist(
        "token", probability, logp=log_probability, observed=words, dtype="int32"
    )

found = {}
for name, text in texts.items():
    with new_text:
        pm.set_data({"words": numbers(text)})
        found[name] = pm.sample(
            draws=500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
of_texts = pd.DataFrame({
    name: result.posterior["share"].mean(["chain", "draw"]).to_series()
    for name, result in found.items()
})  # fmt: skip
most = of_texts.max(axis=1).nlargest(4).index
of_texts.loc[most].round(2).assign(
    words=[", ".join(top[list(largest).index(k)]) for k in most]
)
