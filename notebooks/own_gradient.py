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
# # Topics of texts, by a gradient of your own
#
# Which words go together in a collection of texts? A topic model answers this without
# knowing what the texts are about. With the texts' shares of the topics integrated out,
# its likelihood sums over all ways to give each word of a text a topic. These are too
# many terms to compute. ([Topics of a novel](novel) samples the shares instead, and can
# then write the likelihood.) `sg.GradientPotential` needs only a random estimate of the
# likelihood's gradient. This page makes such an estimate, first for a model whose
# answer is known, then for texts. The page is for users whose likelihood cannot be
# computed. It takes a minute.

# %%
import inspect
import logging
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.spatial
import scipy.stats

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
rng = np.random.default_rng(0)

# %% [markdown]
# ## A model whose answer is known
#
# Each of 1,000 numbers $y_i$ is a hidden number $z_i$ plus standard normal noise, and
# $z_i$ is normal with mean θ and variance 1. If all $z_i$ were known, the derivative of
# the log likelihood with respect to θ would be $\sum_i (z_i - \theta)$. They are not
# known, but we can draw them: given $y_i$ and θ, $z_i$ is normal with mean $(y_i +
# \theta)/2$ and variance ½. The derivative at one such draw is right on average. This
# is Fisher's identity:
#
# $$\nabla_\theta \log p(y \mid \theta)
# = \operatorname{E}\bigl[\nabla_\theta \log p(y, z \mid \theta)
# \bigm| y, \theta\bigr].$$
#
# The function below makes that draw and returns that derivative, for the rows of a
# batch. `noise` gives random numbers that are fresh at every update.

# %%
data = rng.normal(1.0, np.sqrt(2), size=1000)


def known(theta, y, noise):
    z = (y + theta) / 2 + np.sqrt(0.5) * noise.normal(y.type.shape)
    return (z - theta).sum()


quiet = {
    "cores": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
    "random_seed": 1,
}
with pm.Model():
    y = pm.Minibatch(data, batch_size=100)
    theta = pm.Normal("theta", 0, 10, initval=1.0)
    sg.GradientPotential("y", known, [theta], [y], total_size=len(data))
    step = sg.MSGNHT(step_size=0.1, thin=50, scale={"theta": 0.05})
    dt = pm.sample(step=step, draws=500, tune=50, chains=2, **quiet)

precision = 1 / 10**2 + len(data) / 2
draws = dt.posterior["theta"].values
print(f"mean {draws.mean():.3f}, exact {data.sum() / 2 / precision:.3f}")
print(f"sd   {draws.std():.3f}, exact {precision**-0.5:.3f}")

exact = scipy.stats.norm(data.sum() / 2 / precision, precision**-0.5)
grid = np.linspace(*exact.ppf([0.0005, 0.9995]), 200)
figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
axis.hist(draws.ravel(), 40, density=True, alpha=0.4, label="draws")
axis.plot(grid, exact.pdf(grid), label="exact")
axis.set(xlabel="θ", yticks=[])
legend = axis.legend()

# %% [markdown]
# We wrote down neither the density of $y_i$ nor its derivative.
#
# ## Texts
#
# The texts are the docstrings of functions of SciPy, because every reader has them. We
# know from which part of SciPy each text comes, but the model does not. We leave out
# very frequent and rare words, and keep 40 random words of each text. Shorter texts are
# filled up with -1.

# %%
LENGTH, TOPICS, ALPHA = 40, 6, 0.1
PARTS = (scipy.linalg, scipy.ndimage, scipy.signal, scipy.spatial, scipy.stats)

found, origin = [], []
for part in PARTS:
    for name in part.__all__:
        thing = getattr(part, name)
        if callable(thing) and len(text := inspect.getdoc(thing) or "") > 400:
            found.append(re.findall("[a-z]{4,}", text.lower()))
            origin.append(part.__name__)
origin = np.array(origin)
seen_in = pd.Series([word for text in found for word in set(text)]).value_counts()
vocabulary = seen_in.index[
    (seen_in >= 12) & (seen_in <= 0.25 * len(found))
].sort_values()
texts = np.full((len(found), LENGTH), -1)
for row, text in zip(texts, found, strict=True):
    known_words = vocabulary.get_indexer(text)
    words = rng.permutation(known_words[known_words >= 0])[:LENGTH]
    row[: len(words)] = words
print(f"{len(texts)} texts, {len(vocabulary)} different words")

# %% [markdown]
# ## The topic model
#
# Latent Dirichlet allocation: topic k is a distribution $\pi_k$ over words; each text
# has proportions of topics, drawn from a Dirichlet(α) distribution; each word of a text
# has a hidden topic z, drawn from these proportions, and is drawn from $\pi_z$. The
# proportions can be integrated out. Then, given the topics of all other words of its
# text, the topic of a word w is k with a probability proportional to
#
# $$(\alpha + n_k)\, \pi_{kw},
# \qquad n_k \text{ the other words of the text with topic } k.$$
#
# A Gibbs sampler draws the topics of the words one after the other by this rule, in all
# texts of the batch at once. `pytensor.scan` is the loop over the words. In the first
# pass $n_k$ counts only the words before this one. The later passes forget that start.
#
# We write π as the softmax of an unbounded matrix φ. With all z known and $N_{kw}$ the
# number of words w of topic k, the gradient with respect to $\phi_{kw}$ is
# $N_{kw} - \pi_{kw} \sum_v N_{kv}$.

# %%
PASSES = 4


def of_topics(phi, words, noise):
    pi = pt.special.softmax(phi, axis=-1)
    (texts_, length), (topics, size) = words.type.shape, phi.type.shape
    real = (words >= 0).astype(phi.dtype)
    index = pt.maximum(words, 0)
    likelihood = pi.T[index.T.ravel()].reshape((length, texts_, topics))

    def one_word(of_word, counted, u, old, n):
        n = n - pt.eq(old[:, None], np.arange(topics)) * counted[:, None]
        below = pt.cumsum((ALPHA + n) * of_word, axis=1)
        z = pt.sum(below < (u * below[:, -1])[:, None], axis=1)
        z = pt.minimum(z, topics - 1)
        return n + pt.eq(z[:, None], np.arange(topics)) * counted[:, None], z

    # "Topic" TOPICS is none
    z, n = pt.as_tensor(np.full((length, texts_), topics)), pt.zeros((texts_, topics))
    for _ in range(PASSES):
        u = noise.uniform((length, texts_))
        ns, z = pytensor.scan(
            one_word, sequences=[likelihood, real.T, u, z], outputs_info=[n, None],
            return_updates=False,
        )  # fmt: skip
        n = ns[-1]
    counts = pt.zeros(topics * size)[(z * size + index.T).ravel()].inc(real.T.ravel())
    counts = counts.reshape((topics, size))
    return counts - counts.sum(axis=1, keepdims=True) * pi


# %% [markdown]
# Everything else is as in any model: a prior, a minibatch, a step method. You have to
# pass the step size, because tuning would need the density.

# %%
with pm.Model():
    words = pm.Minibatch(texts, batch_size=50)
    phi = pm.Normal("phi", 0, 1, shape=(TOPICS, len(vocabulary)))
    sg.GradientPotential("words", of_topics, [phi], [words], total_size=len(texts))
    step = sg.MSGNHT(step_size=0.03, thin=20)
    dt = pm.sample(step=step, draws=50, tune=50, chains=1, **quiet)

phi = dt.posterior["phi"].values[0]
pi = np.exp(phi - phi.max(axis=-1, keepdims=True))
pi /= pi.sum(axis=-1, keepdims=True)
mean = pi.mean(axis=0)

# %% [markdown]
# ## What the topics are
#
# The table has the words by which a topic differs most from the others. They are those
# with the largest $\pi_{kw} \log(\pi_{kw} / \bar\pi_w)$, where $\bar\pi$ is the mean of
# all topics:

# %%
distinct = mean * np.log(mean / mean.mean(axis=0))
names = [f"topic {k + 1}" for k in range(TOPICS)]
top = np.argsort(-distinct, axis=1)[:, :10]
pd.DataFrame({name: vocabulary[row] for name, row in zip(names, top, strict=True)})

# %% [markdown]
# Which parts of SciPy use these topics? We assign each text to the topic under which
# its words are likeliest.

# %%
likelier = np.log(mean).T[np.maximum(texts, 0)] * (texts >= 0)[..., None]
table = pd.crosstab(origin, np.array(names)[likelier.sum(axis=1).argmax(axis=-1)])
table

# %%
share = table.div(table.sum(axis=1), axis=0)
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.set_xticks(range(len(share.columns)), share.columns)
axis.set_yticks(range(len(share)), share.index)
image = axis.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
bar = figure.colorbar(image, label="share of the texts")

# %% [markdown]
# Topics have no order, so another chain finds them under other numbers. Compare chains
# by something that does not depend on the numbers, such as the perplexity of held-out
# texts.
#
# If the Gibbs sampler is so short that it has not forgotten its start, the gradient is
# biased. To see whether this matters, double `PASSES` and compare. To see whether the
# step size is small enough, halve it.
