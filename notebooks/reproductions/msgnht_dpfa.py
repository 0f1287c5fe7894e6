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
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), Figure 5: a topic model in which a deep
# sigmoid belief net decides which topics are open in a document. The counts of words in document n
# are
#
# $$x_n \sim \operatorname{Poisson}\bigl(\Phi\,(\theta_n \odot h_n)\bigr), \qquad
# h_{nk} \sim \operatorname{Bernoulli}\bigl(\sigma(W j_n + c)_k\bigr), \qquad
# j_{nl} \sim \operatorname{Bernoulli}\bigl(\sigma(W' m_n + c')_l\bigr), \qquad
# m_{ni} \sim \operatorname{Bernoulli}(\sigma(b_i)).$$
#
# mSGNHT samples the parameters of the net, with the symmetric splitting (S) and with Euler's scheme
# (E), and a Riemannian Langevin method the topics $\Phi$. The measure is the perplexity of held-out
# words of test documents against the documents seen. The paper says that S converges faster than E
# at both of its step sizes, that it is better at the end, too, and that the deep model is better
# than a shallow one.
#
# As in the paper: step sizes $10^{-4}$ and $10^{-5}$, D = 40, batches of 100 documents, and the
# gradient of ten million documents. What the paper leaves to Gan et al. (2015) we take from the
# [program](https://github.com/zhegan27/dpfa_icml2015) of that paper: a Dirichlet(0.05) prior of a
# topic, $\theta \sim \operatorname{Gamma}(1/K, 1)$, weights that start at 0.1 N(0, 1), SGRLD in
# expanded means with the steps $\epsilon_t = (1 + t)^{-0.33} / 100$ for $\Phi$, long stretches of
# updates of the one and the other in turn (20 here).
#
# What is different:
#
# - The documents are 896 pieces of at most 60 words of 395 reports of Reuters, and 385 for the
#   test. Batches are drawn from these again and again, and `total_size=10_000_000` makes each batch
#   stand for ten million documents of this kind. So the noise of a gradient is that of the paper.
# - The layers have 32, 16 and 8 units, a quarter of the paper's. 1,600 batches are seen by the net,
#   and as many by $\Phi$: 1.6 % of the paper's one pass of 100,000 batches.
# - The paper's "Expanded-Natural" method for $\Phi$ is another parametrisation than the expanded
#   mean of the program, which the package has.
# - A fifth of the words of a test document is held out. All priors of weights are N(0, 1).

# %%
import logging
import warnings

from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import reproduction
import topics

from datasets import reuters
from reproduction import SMALL, Reproduction, StepSize, beyond, over_seeds

import pymc_sgmcmc as sg

pytensor.config.floatX = "float32"
logging.getLogger("pymc").setLevel(logging.ERROR)
# That total_size is not the number of documents is meant
warnings.filterwarnings("ignore", "The GradientPotential")
run = Reproduction("msgnht_dpfa", "Li et al. (2016)", "Figure 5: deep Poisson factor analysis")
LAYERS = K, J, M = (6, 4, 2) if SMALL else (32, 16, 8)
LENGTH, BATCH, UPDATES, DRAWS = (20, 10, 40, 2) if SMALL else (60, 100, 1600, 20)
CHAINS = 2
# Updates in a row of the net or of Φ; Gibbs sweeps of a gradient and of a prediction
TURN, SWEEPS, LOOKS, BURN = 20, 3, 20, 5

doc, word, name = reuters()
corpus = topics.corpus(doc, word, length=LENGTH)
V = corpus.size
counts = np.stack([np.bincount(d[d >= 0], minlength=V) for d in corpus.train]).astype("float32")
held = np.concatenate([corpus.validation, corpus.test])
seen, unseen = np.delete(held, np.s_[4::5], axis=1), held[:, 4::5]
print(f"{len(corpus.train)} documents for training, {len(held)} for the test, {V:,} words")

# %% [markdown]
# ## Model and its gradient
#
# The hidden units of the batch's documents are drawn by Gibbs sweeps (`topics.deep_units`). With
# them the density of words and units is simple. The gradient to $\Phi$ takes the expected topics
# of the words, given θ and h.

# %%
NET = {"W": (K, J), "c": (K,), "W2": (J, M), "c2": (J,), "b": (M,)}
NONE = {name: np.zeros(shape, "float32") for name, shape in NET.items()}


def estimate(*given):
    *net, phi, words, counts, noise = given
    random = topics.deep_noise(noise, SWEEPS, BATCH, LENGTH, LAYERS)
    found = topics.deep_units(
        words, phi, net or [pt.constant(x) for x in NONE.values()], random,
        topics.deep_start(LAYERS, BATCH), 1 / K, deep=bool(net),
    )  # fmt: skip
    h, theta, j, m = (x[-1] for x in found)
    of_phi = (theta * h) @ (counts / pt.maximum((theta * h).T @ phi, 1e-30))
    if not net:
        return of_phi
    W, c, W2, c2, b = net
    error = h - pt.sigmoid(W @ j + c[:, None])
    error2 = j - pt.sigmoid(W2 @ m + c2[:, None])
    error3 = m - pt.sigmoid(b)[:, None]
    return [
        error @ j.T, error.sum(axis=1), error2 @ m.T, error2.sum(axis=1), error3.sum(axis=1),
        of_phi,
    ]  # fmt: skip


def model(deep):
    rng = np.random.default_rng(1)
    with pm.Model() as built:
        words, n = pm.Minibatch(corpus.train, counts, batch_size=BATCH)
        net = [
            pm.Normal(name, shape=shape, initval=(0.1 * rng.standard_normal(shape)).astype("f4"))
            for name, shape in (NET if deep else {}).items()
        ]
        phi = pm.Dirichlet(
            "phi", np.full((K, V), 0.05), initval=rng.dirichlet(np.ones(V), K).astype("float32")
        )
        sg.GradientPotential("words", estimate, [*net, phi], [words, n], total_size=10_000_000)
    return built


@cache
def steps(method):
    """The net's step size, and the step methods of the net and of Φ, or of Φ alone."""
    h = StepSize()
    papers = {"thin": TURN, "gradient": "plain", "batches": 1, "backend": "jax"}
    thermostat = {"step_size": h, "diffusion": 40.0, "scale": None, "thermostat_mass": 1.0}
    with model(deep=method != "shallow") as built:
        of_phi = sg.SGRLD([built["phi"]], step_size=lambda t: 0.005 * (1 + t) ** -0.33, **papers)
        if method == "shallow":
            return h, [reproduction.unmoved(of_phi)]
        cls = sg.SGNHT if method == "SGNHT-S" else sg.MSGNHT
        integrator = "euler" if method.endswith("E") else "ssi"
        net = [built[name] for name in NET]
        of_net = cls(net, integrator=integrator, **thermostat, **papers)
        return h, [reproduction.unmoved(step) for step in (of_net, of_phi)]


# %% [markdown]
# ## Perplexity
#
# For each draw the Gibbs sampler sees four fifths of the words of each test document. The mean of
# $\Phi(\theta \odot h)$, made to sum to one, predicts the rest.


# %%
@cache
def predictor(deep):
    shapes = [*NET.values(), (K, V)]
    return topics.deep_predictor(
        seen, unseen, shapes, LAYERS, 1 / K, deep=deep, sweeps=LOOKS, burn_in=BURN
    )


def perplexity(p):
    return np.exp(-np.log(np.maximum(p, 1e-30)).mean(axis=-1))


def measure(method, h):
    """Probabilities of held-out words, of shape (chain, draw, word), and h times the friction."""
    (size, both), found, friction = steps(method), [], []
    size.h = h
    for seed in range(CHAINS):
        dt, taken = reproduction.sample_to_end(
            both, UPDATES // TURN, chains=1, random_seed=seed, compute_convergence_checks=False
        )
        run.count(taken * len(both))
        if dt is None:
            print(f"{method}, h = {h:g}: a chain ended after {taken} updates", flush=True)
            return None, np.nan
        every = len(dt.posterior["draw"]) // DRAWS
        draws = {name: x.values[0, every - 1 :: every] for name, x in dt.posterior.items()}
        net = zip(*(draws.get(name, [x] * DRAWS) for name, x in NONE.items()), strict=True)
        predict = predictor(method != "shallow")
        found.append([predict(*w, phi) for w, phi in zip(net, draws["phi"], strict=True)])
        if "thermostat" in dt.sample_stats:
            friction.append(h * np.nanmax(dt.sample_stats["thermostat"].values[0, -1]))
    p = np.array(found)
    print(f"{method}, h = {h:g}: perplexity {perplexity(p)[:, -1].round(1)}, h times the mean "
          f"thermostat at the end {np.round(friction, 4)}", flush=True)  # fmt: skip
    return p, np.mean(friction or [np.nan])


STEPS = (1e-4,) if SMALL else (1e-4, 1e-5)
found = {(m, h): measure(m, h) for h in STEPS for m in ("mSGNHT-S", "mSGNHT-E")}
for method in () if SMALL else ("SGNHT-S", "shallow"):
    found[method, 1e-4] = measure(method, 1e-4)

# %% [markdown]
# ## Figure 5
#
# Curves are means of the chains. The right panel magnifies the last fifth, as a small plot within
# the paper's figure does.

# %%
documents = BATCH * UPDATES // DRAWS * np.arange(1, DRAWS + 1)
figure, (axis, inset) = plt.subplots(
    1, 2, figsize=(10, 4), layout="constrained", width_ratios=(2, 1)
)
for (method, h), (p, _) in found.items():
    if p is None:
        axis.plot([], [], label=f"{method}, h = {h:g}: ends")
        continue
    colours = {"shallow": "black", "SGNHT-S": "C2"}
    style = {
        "color": colours.get(method, f"C{STEPS.index(h)}"),
        "linestyle": "--" if method.endswith("E") else "-",
    }
    label = "shallow" if method == "shallow" else f"{method}, h = {h:g}"
    curve = perplexity(p).mean(axis=0)
    axis.plot(documents, curve, label=label, **style)
    inset.plot(documents[-(DRAWS // 5) - 1 :], curve[-(DRAWS // 5) - 1 :], **style)
axis.set(xlabel="documents seen", ylabel="perplexity of held-out words", title="Figure 5")
inset.set(xlabel="documents seen", title="the last fifth")
axis.legend(fontsize=8)
plt.show()
run.picture(figure)

# %% [markdown]
# ## With nothing set
#
# A model of which only the gradient is known cannot be tuned, and its binary units cannot be summed
# over. A step method without a step size says so.

# %%
for call, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    with run.untuned(call), model(True):
        method()

# %% [markdown]
# ## Verdicts
#
# What is seen: hξ is 0.06 at h = 1e-4 and 0.004 at h = 1e-5 after 1,600 updates of the net. In one
# update E multiplies a momentum by 1 - hξ and S by exp(-hξ), and these differ by (hξ)²/2, which is
# next to nothing. Differences of the size seen here lie also between chains of one method, so two
# chains cannot tell. Most is learned from the first 8,000 documents, and the deep model is then no
# better than the shallow one.
#
# How fast a method converges is the mean of the perplexity over the first half of the curve; at the
# end, predictions of the second half of the draws are averaged. Standard errors of two chains are
# widened as Student's t is.


# %%
def differences(a, b):
    """By how much the perplexity of b is above that of a: on the way, and at the end."""
    on_the_way = [perplexity(x)[:, : DRAWS // 2].mean(axis=1) for x in (a, b)]
    at_end = [perplexity(x[:, DRAWS // 2 :].mean(axis=1)) for x in (a, b)]
    return [(*over_seeds(y - x), x.mean(), y.mean()) for x, y in (on_the_way, at_end)]


for h in STEPS:
    (s, friction), (e, other) = found["mSGNHT-S", h], found["mSGNHT-E", h]
    for k, says in enumerate(("S converges faster than E", "S is better than E at the end")):
        if s is None or e is None:
            ends = [name for name, p in (("S", s), ("E", e)) if p is None]
            run.verdict(f"{says}, h = {h:g} (Figure 5)", f"{' and '.join(ends)} ends before its "
                        "last update", s is not None, seeds=CHAINS)  # fmt: skip
            continue
        mean, error, of_s, of_e = differences(s, e)[k]
        run.verdict(
            f"{says}, h = {h:g} (Figure 5)",
            f"a perplexity of {of_s:.1f} against {of_e:.1f}, less by {mean:.2f} ± {error:.2f}; "
            f"hξ is {friction:.3f} and {other:.3f} at the end",
            beyond(mean, reproduction.of_few(error, CHAINS)), seeds=CHAINS,
        )  # fmt: skip
for method, says in (
    ("shallow", "the deep model is better than a shallow one (Figure 5)"),
    ("SGNHT-S", "mSGNHT provides more adaptivity than SGNHT (section 1)"),
):
    deep, other = found["mSGNHT-S", 1e-4][0], found.get((method, 1e-4), [None])[0]
    if deep is not None and other is not None:
        mean, error, ours, theirs = differences(deep, other)[1]
        run.verdict(
            says, f"a perplexity of {ours:.1f} against {theirs:.1f} at the end, h = 1e-4, less by "
            f"{mean:.1f} ± {error:.1f}", beyond(mean, reproduction.of_few(error, CHAINS)),
            seeds=CHAINS,
        )  # fmt: skip
run.end()
