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
# # Deep Poisson factor analysis
#
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), Figure 5. A topic model in which a deep
# belief net decides which topics are open in a document: the counts of words in document n are
#
# $$x_n \sim \operatorname{Poisson}\bigl(\Phi\,(\theta_n \odot h_n)\bigr), \qquad
# h_{nk} \sim \operatorname{Bernoulli}\bigl(\sigma(W j_n + c)_k\bigr), \qquad
# j_{nl} \sim \operatorname{Bernoulli}\bigl(\sigma(W' m_n + c')_l\bigr), \qquad
# m_{ni} \sim \operatorname{Bernoulli}(\sigma(b_i)),$$
#
# with a distribution over words for each topic in $\Phi$, positive $\theta_n$ and three layers
# h, j, m of binary units. mSGNHT samples the global parameters, with the symmetric splitting (SSI)
# and with Euler's scheme. The measure is the perplexity of held-out words of test documents,
# against the documents seen. The paper says
#
# 1. that SSI converges faster than Euler at both of its step sizes;
# 2. that it is no worse at the end;
# 3. that the deep model is better than a shallow one (latent Dirichlet allocation, trained by
#    another method).
#
# The paper's settings: 10 million documents of Wikipedia, layers of 128, 64 and 32 units, batches
# of 100, step sizes of 1e-4 and 1e-5, D = 40, one pass. What is changed:
#
# - 395 reports of Reuters, a fifth of them for testing, in place of Wikipedia; words that occur at
#   least 20 times; at most 200 words of a document. In a test document a fifth of the words is held
#   out. Layers of 32, 16 and 8 units; batches of 50; 600 updates, about 95 passes.
# - The width of a posterior goes with $1/\sqrt N$. So step sizes and 1/D are the paper's times
#   $\sqrt{10^7/N}$. Twice the larger step is tried, too. The mass of the thermostat is 1.
# - The shallow model is this one with all topics open and no belief net, sampled by the same
#   method.
#
# What the paper does not say, we chose: $\Phi$ is the softmax of normal variables; all priors are
# N(0, 1); $\theta$ is exponential, with a mean such that a document with half of the topics open
# has the average length.

# %%
import logging

from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from datasets import reuters
from pymc.exceptions import SamplingError
from reproduction import QUIET, SMALL, Reproduction
from scipy.special import expit

import pymc_sgmcmc as sg

pytensor.config.floatX = "float32"
logging.getLogger("pymc").setLevel(logging.ERROR)
reproduction = Reproduction(
    "msgnht_dpfa", "Li et al. (2016)", "Figure 5: deep Poisson factor analysis"
)
LAYERS = K, J, M = (6, 4, 2) if SMALL else (32, 16, 8)
LENGTH = 60 if SMALL else 200
BATCH = 10 if SMALL else 50
UPDATES, DRAWS = (20, 2) if SMALL else (600, 20)
CHAINS = 1 if SMALL else 3
# Gibbs sweeps for a gradient, and for a prediction, of which the first are left out
SWEEPS, LOOKS, BURN = 3, 20, 5

doc, word, name = reuters()
usual = np.flatnonzero(np.bincount(word) >= 20)
V = len(usual)
rng = np.random.default_rng(0)
documents = []
for i in rng.permutation(doc.max() + 1):
    words = word[doc == i]
    words = np.searchsorted(usual, words[np.isin(words, usual)])
    documents.append(rng.permutation(words)[:LENGTH])


def padded(documents):
    """Words of shape (documents, LENGTH), filled up with -1."""
    out = np.full((len(documents), LENGTH), -1)
    for row, words in zip(out, documents, strict=True):
        row[: len(words)] = words
    return out


held = len(documents) // 5
train = padded(documents[held:])
counts = np.stack([np.bincount(words, minlength=V) for words in documents[held:]])
seen = padded([words[: len(words) * 4 // 5] for words in documents[:held]])
unseen = padded([words[len(words) * 4 // 5 :] for words in documents[:held]])
N = len(train)
MEAN = float(counts.sum() / N / (K / 2))
print(f"{N} documents for training, {held} for testing, {V:,} words; mean of theta {MEAN:.1f}")

# %% [markdown]
# ## The Gibbs sampler
#
# One sweep draws, in this order:
#
# - the topic of each word of a document, given $\Phi$, θ and h;
# - h with θ integrated out: a topic with words is open, one without is open with the odds of the
#   layer above times $1/(1 + \text{mean of }\theta)$;
# - θ, which is gamma distributed with shape 1 + words of the topic. Gamma variables are made from
#   normal and uniform ones by the rejection method of [Marsaglia and Tsang
#   (2000)](https://doi.org/10.1145/358407.358414). All documents get four tries, of which the first
#   accepted one counts; that all fail is less likely than one in 100,000;
# - j and m, one unit after the other, as in any sigmoid belief network.


# %%
def units_below(v, W, c, prior, h, uniforms):
    """One sweep over units h of shape (units, documents), with units v of the layer below."""
    units = W.type.shape[1]

    def update(i, u, h, a, rows, prior, seen, growth):
        others = a - h[i][:, None] * rows[i]
        log_ratio = seen[i] - pt.log1p(pt.sigmoid(others) * growth[i]).sum(axis=1)
        on = (u < pt.sigmoid(prior[i] + log_ratio)).astype(h.dtype)
        return pt.set_subtensor(h[i], on), others + on[:, None] * rows[i]

    found = pytensor.scan(
        update, sequences=[pt.constant(np.arange(units)), uniforms],
        outputs_info=[h, h.T @ W.T + c],
        non_sequences=[W.T, prior, W.T @ v, pt.expm1(pt.minimum(W.T, 80))],
        n_steps=units, strict=True, return_updates=False,
    )  # fmt: skip
    return found[0][-1]


TRIES = 4


def gamma(shape, normals, uniforms):
    """Gamma variables of a shape of at least 1: the first try that is accepted."""
    found = d = shape - 1 / 3
    for normal, uniform in reversed([(normals[k], uniforms[k]) for k in range(TRIES)]):
        v = (1 + normal / pt.sqrt(9 * d)) ** 3
        bound = normal**2 / 2 + d * (1 - v + pt.log(pt.maximum(v, 1e-30)))
        found = pt.switch((v > 0) & (pt.log(uniform) < bound), d * v, found)
    return found


def shapes_of_noise(sweeps, docs):
    return {
        "topics": (sweeps, docs, LENGTH), "h": (sweeps, K, docs), "j": (sweeps, J, docs),
        "m": (sweeps, M, docs), "normals": (sweeps, TRIES, K, docs),
        "tries": (sweeps, TRIES, K, docs),
    }  # fmt: skip


def latent(words, topics, net, random, start, deep=True, mean=MEAN):
    """h, theta, j and m of some documents after each of some sweeps."""
    mask = (words >= 0).astype("float32")[:, :, None]
    columns = topics.T[pt.maximum(words, 0)]

    def sweep(u, u_h, u_j, u_m, normals, tries, h, theta, j, m, columns, mask, W, c, W2, c2, b):
        below = pt.cumsum(columns * (theta * h).T[:, None, :], axis=2)
        up_to = ((u[:, :, None] * below[:, :, -1:] < below) * mask).sum(axis=1).T
        words_of = up_to - pt.concatenate([pt.zeros_like(up_to[:1]), up_to[:-1]])
        if deep:
            p = pt.sigmoid(W @ j + c[:, None] - np.float32(np.log1p(mean)))
            h = ((u_h < p) | (words_of > 0.5)).astype("float32")
        theta = gamma(1 + words_of, normals, tries) / (np.float32(1 / mean) + h)
        if deep:
            j = units_below(h, W, c, W2 @ m + c2[:, None], j, u_j)
            m = units_below(j, W2, c2, b[:, None] + pt.zeros_like(m), m, u_m)
        return h, theta, j, m

    return pytensor.scan(
        sweep, sequences=random, outputs_info=start, non_sequences=[columns, mask, *net],
        n_steps=random[0].type.shape[0], strict=True, return_updates=False,
    )  # fmt: skip


def opened(docs):
    """The start: all topics open."""
    ones = pt.ones((K, docs), dtype="float32")
    return [ones, ones, *(pt.zeros((n, docs), dtype="float32") for n in (J, M))]


# %% [markdown]
# The sampler against the truth: latent variables and words of many documents are drawn from a
# model, from the top to the words. Then Gibbs sweeps of the latent variables must not change their
# distribution. Each mean below is that after three sweeps less that before, in standard errors.

# %%
rng = np.random.default_rng(3)
docs = 500 if SMALL else 1000
NET = {"W": (K, J), "c": (K,), "W2": (J, M), "c2": (J,), "b": (M,)}
true = {name: rng.standard_normal(shape).astype("float32") for name, shape in NET.items()}
topics = rng.dirichlet(np.full(30, 0.3), K).astype("float32")
m = rng.random((M, docs)) < expit(true["b"])[:, None]
j = rng.random((J, docs)) < expit(true["W2"] @ m + true["c2"][:, None])
h = rng.random((K, docs)) < expit(true["W"] @ j + true["c"][:, None])
theta = rng.exponential(2.0, (K, docs))
drawn = rng.poisson((theta * h).T @ topics)
words = padded([np.repeat(np.arange(30), n)[:LENGTH] for n in drawn])
before = [x.astype("float32") for x in (h, theta, j, m)]
noise = [
    (rng.standard_normal if name == "normals" else rng.random)(shape, dtype="float32")
    for name, shape in shapes_of_noise(SWEEPS, docs).items()
]
after = pytensor.function(
    [],
    [
        x[-1]
        for x in latent(
            pt.constant(words), pt.constant(topics), [pt.constant(x) for x in true.values()],
            [pt.constant(x) for x in noise], [pt.constant(x) for x in before], mean=2.0,
        )
    ],
    mode="JAX",
)()  # fmt: skip
MEASURES = {
    "h": lambda h, theta, j, m: h.mean(axis=0),
    "theta": lambda h, theta, j, m: theta.mean(axis=0),
    "theta²": lambda h, theta, j, m: (theta**2).mean(axis=0),
    "theta h": lambda h, theta, j, m: (theta * h).mean(axis=0),
    "j": lambda h, theta, j, m: j.mean(axis=0),
    "m": lambda h, theta, j, m: m.mean(axis=0),
    "h j": lambda h, theta, j, m: h.mean(axis=0) * j.mean(axis=0),
    "j m": lambda h, theta, j, m: j.mean(axis=0) * m.mean(axis=0),
}
for name, measure in MEASURES.items():
    change = measure(*map(np.asarray, after)) - measure(*before)
    print(f"{name:8} {change.mean() / change.std() * np.sqrt(docs):5.1f}")

# %% [markdown]
# ## The model and its gradient
#
# With all latent variables drawn the density of words and units is simple. The gradient to
# $\Phi$ needs no topics of single words: their expectation, given θ and h, takes their place.


# %%
def estimate(deep):
    """The gradient's estimate, with the belief net or with all topics open."""

    def gradient(phi, *others):
        *net, words, counts, noise = others
        docs = words.type.shape[0]
        topics = pt.special.softmax(phi, axis=1)
        random = [
            (noise.normal if name == "normals" else noise.uniform)(shape)
            for name, shape in shapes_of_noise(SWEEPS, docs).items()
        ]
        zeros = [pt.zeros(shape, dtype="float32") for shape in NET.values()]
        found = latent(words, topics, net or zeros, random, opened(docs), deep)
        h, theta, j, m = (x[-1] for x in found)
        rate = (theta * h).T @ topics
        share = topics * ((theta * h) @ (counts / pt.maximum(rate, 1e-30)))
        of_phi = share - topics * share.sum(axis=1, keepdims=True)
        if not deep:
            return of_phi
        W, c, W2, c2, b = net
        error = h - pt.sigmoid(W @ j + c[:, None])
        error2 = j - pt.sigmoid(W2 @ m + c2[:, None])
        error3 = m - pt.sigmoid(b)[:, None]
        return [
            of_phi, error @ j.T, error.sum(axis=1), error2 @ m.T, error2.sum(axis=1),
            error3.sum(axis=1),
        ]  # fmt: skip

    return gradient


def model(deep=True):
    shapes = {"phi": (K, V), **(NET if deep else {})}
    rng = np.random.default_rng(1)
    with pm.Model() as built:
        words, n = pm.Minibatch(train, counts.astype("float32"), batch_size=BATCH)
        variables = [
            pm.Normal(
                name, shape=shape, initval=(0.1 * rng.standard_normal(shape)).astype("float32")
            )
            for name, shape in shapes.items()
        ]
        sg.GradientPotential("words", estimate(deep), variables, [words, n], total_size=N)
    return built


# %% [markdown]
# ## Perplexity
#
# For each draw of the parameters, the Gibbs sampler sees four fifths of the words of each test
# document. The mean of $\Phi(\theta \odot h)$, made to sum to one, predicts the rest.


# %%
@cache
def predictor(deep):
    """A function that predicts the held-out words, from one draw of the parameters."""
    shapes = shapes_of_noise(LOOKS, held)
    random = [pt.tensor(name, dtype="float32", shape=shape) for name, shape in shapes.items()]
    phi, *net = (
        pt.tensor(name, dtype="float32", shape=shape)
        for name, shape in {"phi": (K, V), **NET}.items()
    )
    topics = pt.special.softmax(phi, axis=1)
    h, theta, *_ = latent(pt.constant(seen), topics, net, random, opened(held), deep)
    weight = (h * theta)[BURN:]
    weight = (weight / weight.sum(axis=1, keepdims=True)).mean(axis=0)
    compiled = pytensor.function(
        [phi, *net, *random], weight.T @ topics, mode="JAX", on_unused_input="ignore"
    )
    row, column = np.nonzero(unseen >= 0)
    noise = np.random.default_rng(0)

    def predict(phi, net):
        numbers = [
            (noise.standard_normal if name == "normals" else noise.random)(shape, dtype="float32")
            for name, shape in shapes.items()
        ]
        return np.asarray(compiled(phi, *net, *numbers))[row, unseen[row, column]]

    return predict


def perplexity(p):
    return np.exp(-np.log(p).mean(axis=-1))


def sample(deep, integrator, h, diffusion):
    """Probabilities of the held-out words, of shape (chain, draw, word); None if it diverges."""
    with model(deep):
        step = sg.MSGNHT(
            integrator=integrator, step_size=h, diffusion=diffusion, thermostat_mass=1.0,
            thin=UPDATES // DRAWS, scale=None, gradient="plain", batches=1, backend="jax",
        )  # fmt: skip
        try:
            dt = pm.sample(
                step=step, draws=DRAWS, tune=0, chains=CHAINS, random_seed=1,
                **QUIET,
            )  # fmt: skip
        except SamplingError as error:
            print(f"{integrator}, h = {h:.2g}: {str(error)[:80]}…")
            return None
    reproduction.count(CHAINS * UPDATES)
    draws = {name: values.values for name, values in dt.posterior.items()}
    zeros = [np.zeros(shape, "float32") for shape in NET.values()]
    return np.array([
        [
            predictor(deep)(
                draws["phi"][chain, i],
                [draws[name][chain, i] for name in NET] if deep else zeros,
            )
            for i in range(DRAWS)
        ]
        for chain in range(CHAINS)
    ])  # fmt: skip


# %% [markdown]
# ## Figure 5

# %%
FACTOR = np.sqrt(1e7 / N)
STEPS = {"1e-4": 1e-4 * FACTOR, "1e-5": 1e-5 * FACTOR, "2e-4": 2e-4 * FACTOR}
if SMALL:
    STEPS = {"1e-4": 1e-4 * FACTOR}
D = 40 / FACTOR
print(f"D = {D:.2f}, step sizes " + ", ".join(f"{h:.2g} ({of})" for of, h in STEPS.items()))
found = {
    (of, integrator): sample(True, integrator, h, D)
    for of, h in STEPS.items()
    for integrator in ("ssi", "euler")
}
shallow = None if SMALL else sample(False, "ssi", STEPS["1e-4"], D)

# %%
documents_seen = BATCH * UPDATES // DRAWS * np.arange(1, DRAWS + 1)
figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
for k, of in enumerate(STEPS):
    for integrator, line in (("ssi", "-"), ("euler", "--")):
        label = f"{integrator}, the paper's {of}" if of != "2e-4" else f"{integrator}, {of}"
        if found[of, integrator] is None:
            axis.plot([], [], line, color=f"C{k}", label=f"{label}: diverges")
            continue
        curve = perplexity(found[of, integrator]).mean(axis=0)
        axis.plot(documents_seen, curve, line, color=f"C{k}", label=label)
if shallow is not None:
    curve = perplexity(shallow).mean(axis=0)
    axis.plot(documents_seen, curve, ":", color="black", label="shallow, ssi")
axis.set(xlabel="documents seen", ylabel="perplexity of held-out words", yscale="log")
axis.legend()
plt.show()
reproduction.picture(figure)


# %% [markdown]
# At the end predictions are averaged over the second half of the draws. How fast a method converges
# is the mean over the first half of the curve. Both are differences of chains that have the same
# batches and random numbers.


# %%
def measured(p):
    """Perplexity along the first half and of the average at the end, for each chain."""
    return perplexity(p)[:, : DRAWS // 2].mean(axis=1), perplexity(p[:, DRAWS // 2 :].mean(axis=1))


def mean_and_error(x):
    return x.mean(), x.std(ddof=1) / np.sqrt(CHAINS) if CHAINS > 1 else 0.0


def stated(x):
    return "{:.1f} ± {:.1f}".format(*mean_and_error(x))


frequency = np.bincount(train[train >= 0], minlength=V) + 1
flat = perplexity((frequency / frequency.sum())[unseen[unseen >= 0]])
print(f"Words' frequencies alone: {flat:.1f}. Perplexity on the way, and at the end:")
for (of, integrator), p in found.items():
    if p is not None:
        print(f"{of} {integrator:5}: {', '.join(stated(x) for x in measured(p))}")
if shallow is not None:
    print(f"shallow    : {', '.join(stated(x) for x in measured(shallow))}")

for k, says in enumerate(("SSI converges faster than Euler", "SSI is no worse at the end")):
    for of in STEPS:
        of_paper = f"the paper's {of}" if of != "2e-4" else "twice the paper's larger one"
        ssi, euler = (found[of, integrator] for integrator in ("ssi", "euler"))
        if ssi is None or euler is None:
            diverged = [n for n, p in (("SSI", ssi), ("Euler", euler)) if p is None]
            seen_here, holds = f"that {' and '.join(diverged)} diverges", ssi is not None
        else:
            a, b = measured(ssi)[k], measured(euler)[k]
            mean, error = mean_and_error(b - a)
            holds = mean > 2 * error if k == 0 else mean > -2 * error
            seen_here = (
                f"a perplexity of {stated(a)} against {stated(b)}, less by {mean:.2f} ± {error:.2f}"
            )
        reproduction.verdict(f"{says} (step size: {of_paper})", seen_here, holds)
deep = found["1e-4", "ssi"]
if deep is not None and shallow is not None:
    a, b = measured(deep)[1], measured(shallow)[1]
    mean, error = mean_and_error(b - a)
    reproduction.verdict(
        "the deep model has a lower perplexity than a shallow one",
        f"{stated(a)} against {stated(b)} at the end, at the same step size",
        mean > 2 * error,
    )

# %% [markdown]
# At both of the paper's step sizes the two integrators cannot be told apart. At twice the larger
# one Euler's scheme diverges, and the splitting is at its best. The smaller step size is still far
# from its end after so few updates. The deep model predicts better than the shallow one.

# %% [markdown]
# ## Untuned
#
# A model of which only the gradient is known cannot be tuned. A step method without a
# step size says so.

# %%
untuned = model()
for name, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    with untuned:
        try:
            method(backend="jax")
        except ValueError as error:
            print(f"{name}: ValueError: {str(error)[:200]}…")

# %%
reproduction.end()
