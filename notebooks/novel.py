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
# unknowns are tens of thousands of probabilities in simplexes. `SMLD`, mirrored
# Langevin dynamics, was made for simplexes. It uses gradients of a thousand words at a
# time. The page is for users of PyMC. Its run took 37 minutes.

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
# The data are the 61 chapters without frequent words (*the*, *and*, …) and rare words.
# They have 32,877 tokens of 1,495 different words. Each token has the number of its
# chapter and of its word. We put aside a fifth of the tokens of every chapter, to see
# later how well the model predicts them.

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
# The model is latent Dirichlet allocation. Chapter $d$ has shares $\theta_d$ of the
# topics, topic $k$ has probabilities $\varphi_k$ of the words, and each token belongs
# to an unknown topic. That topic is summed out:
#
# $$p(\text{word } w \text{ in chapter } d) = \sum_k \theta_{dk}\, \varphi_{kw}.$$
#
# The priors, Dirichlet(0.1), say that a chapter has few topics and a topic has few
# words. The likelihood is a `pm.CustomDist` whose parameter is the probability of each
# word of the batch. (`pm.Categorical` with `theta[d] @ phi` is the same model. But it
# would compute the probabilities of all 1,495 words for each token, to use one of
# them.)

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
# update uses batches. Nothing has to be tuned by hand: each chain finds the scale of
# every coordinate, its step size, and how many batches to average. R-hat of 31,000
# parameters would take longer than the chains, and would mean nothing here, as the next
# section explains.

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
# The numbers of topics are arbitrary: what one chain calls topic 3 the other may call
# topic 7, and the posterior is the same for every numbering. So R-hat of a single
# parameter says nothing. We give each topic of the second chain the number of the most
# similar topic of the first chain.

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
# The likeness of two topics is 1 if they are the same. Both chains find nearly the same
# topics here. But a topic model has many explanations of one book that are about
# equally good, and no sampler visits all of them. So rely on what both chains say, and
# on predictions, which do not depend on the numbering.

# %% [markdown]
# ## The topics
#
# The table has the most characteristic words of each topic of the first chain. They are
# those with the largest $\varphi_{kw} \log(\varphi_{kw} / \bar\varphi_w)$, where
# $\bar\varphi_w$ is the mean over topics. The topics that fill most of the book come
# first.

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
# The figure has the share of some topics in each chapter, with 89 % intervals. The
# intervals are wide, because a chapter of 400 tokens determines a share of one tenth
# only roughly. The posterior shows this uncertainty, and a point estimate does not.

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
# We predict in PyMC's usual way: with a model whose variables have the same names, with
# rows as `pm.Data`, and with `pm.sample_posterior_predictive`. First we compute the
# probability of every token that was put aside.

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
# The perplexity is $e^{-\overline{\log p}}$ over the tokens put aside. It can be read
# as the number of equally likely words among which the model hesitates, so lower is
# better. The posterior mean of the probabilities predicts far better than any single
# draw, and both chains together predict better than one. For comparison the table has a
# model without topics, in which every chapter has the same words.


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
# With other rows the same model makes other predictions. What might the next words of
# some chapters be? In chapter 19 Mr Collins proposes, in chapter 35 Elizabeth reads
# Darcy's letter, and in chapter 61 everybody is married.

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
# For a text that is not in the book, we keep the topics, so only its shares of them are
# unknown. These are few parameters, and PyMC's own sampler is the right one. The words
# of the text are data again.

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
