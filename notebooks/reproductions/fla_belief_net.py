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
# # FLA on a sigmoid belief network
#
# [Şimşekli (2017)](https://arxiv.org/abs/1706.03649), Figure 6. A sigmoid belief network models
# binary images v by one layer of binary hidden units h,
#
# $$h_j \sim \operatorname{Bernoulli}(\sigma(b_j)), \qquad
# v \sim \operatorname{Bernoulli}(\sigma(W h + c)).$$
#
# FLA with constant step sizes samples W, b and c, and annealed importance sampling estimates the
# log likelihood of test images. The paper says
#
# 1. that for small steps all α give similar test likelihoods;
# 2. that the test likelihood of SGLD, which is α = 2, diverges as the step size grows;
# 3. that FLA is the more robust to large steps, the smaller α is, and almost constant at one of the
#    smaller α.
#
# The paper's numbers (units, images, updates, step sizes, values of α) are lost in the
# text version that we have. So we chose:
#
# - The data are 5,000 digits of MNIST in place of all, 200 of them for testing,
#   averaged to 14 by 14 pixels and cut at 0.5. Log likelihoods are those of 196 pixels
#   and cannot be compared with the paper's.
# - There are 50 hidden units, batches of 50 images, 1,500 updates, and priors N(0, 1)
#   on W, b and c.
# - All runs have the same start: small random weights, b = 0, and c that fits each
#   pixel's mean.
# - The gradient of the log likelihood is an expectation over h given v (Fisher's
#   identity). It is estimated with h from two sweeps of a Gibbs sampler that starts at
#   the prior. What more sweeps change is shown below.
# - The likelihood is that of the last draw, on average over three chains. FLA's draws
#   have no mean.
#
# The package tames FLA, which departs from the paper: drifts and jumps are bounded. Without bounds
# it is the paper's algorithm. Both are run.

# %%
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from datasets import digits
from pymc.exceptions import SamplingError
from reproduction import QUIET, SMALL, Reproduction
from scipy.special import expit, log_expit, logit, logsumexp

import pymc_sgmcmc as sg

pytensor.config.floatX = "float32"
warnings.filterwarnings("ignore", message="Found chain dimension to be longer")
logging.getLogger("pymc").setLevel(logging.ERROR)
reproduction = Reproduction("fla_belief_net", "Şimşekli (2017)", "Figure 6: sigmoid belief network")
HIDDEN = 10 if SMALL else 50
UPDATES = 50 if SMALL else 1500
CHAINS = 1 if SMALL else 3
HELD_OUT = 50 if SMALL else 200
SWEEPS = 2

images, _, name = digits()
if images.shape[1] == 784:
    images = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)
binary = (np.random.default_rng(0).permutation(images) > 0.5).astype("float32")
train, test = binary[:-HELD_OUT], binary[-HELD_OUT:]
N, PIXELS = train.shape
print(f"{N:,} images for training, {HELD_OUT} for testing, {PIXELS} pixels")

# %% [markdown]
# ## The Gibbs sampler and the gradient
#
# A unit is drawn given all others, one unit after the other, all images of a batch at once. If the
# other units give the activations $a$ (one for each pixel), unit j has the log odds
#
# $$b_j + \sum_d v_d W_{dj} - \sum_d \log\bigl(1 + \sigma(a_d)(e^{W_{dj}} - 1)\bigr).$$
#
# A factor β on the terms of the pixels is needed for annealing below.
#
# The loop gets everything from outside as `non_sequences`. Otherwise the inner function
# of `pytensor.scan` would compute it again in every iteration.


# %%
def sweep(v, W, b, c, h, uniforms, beta=1.0):
    """Gibbs sweeps over h of shape (hidden, images), a row of uniform numbers for each update."""
    updates, hidden = uniforms.type.shape[0], W.type.shape[1]
    units = pt.constant(np.arange(updates) % hidden)

    def update(j, u, h, a, rows, prior, seen, growth, beta):
        others = a - h[j][:, None] * rows[j]
        log_ratio = seen[j] - pt.log1p(pt.sigmoid(others) * growth[j]).sum(axis=1)
        on = (u < pt.sigmoid(prior[j] + beta * log_ratio)).astype(h.dtype)
        return pt.set_subtensor(h[j], on), others + on[:, None] * rows[j]

    # Beyond 80 the exponential overflows float32
    growth = pt.expm1(pt.minimum(W.T, 80))
    found = pytensor.scan(
        update, sequences=[units, uniforms], outputs_info=[h, h.T @ W.T + c],
        non_sequences=[W.T, b, W.T @ v.T, growth, pt.as_tensor(beta, dtype=h.dtype)],
        n_steps=updates, strict=True, return_updates=False,
    )  # fmt: skip
    return found[0][-1]


def estimate(sweeps):
    """The gradient's estimate from h after some sweeps."""

    def gradient(W, b, c, v, noise):
        hidden, batch = W.type.shape[1], v.type.shape[0]
        p = pt.sigmoid(b)[:, None]
        h = (noise.uniform((hidden, batch)) < p).astype(v.dtype)
        h = sweep(v, W, b, c, h, noise.uniform((sweeps * hidden, batch)))
        error = v - pt.sigmoid(h.T @ W.T + c)
        return error.T @ h.T, (h - p).sum(axis=1), error.sum(axis=0)

    return gradient


# %% [markdown]
# ## Annealed importance sampling
#
# [Salakhutdinov and Murray (2008)](https://doi.org/10.1145/1390156.1390266): h starts at the
# prior, a Gibbs sweep follows at each of 100 inverse temperatures β from 0 to 1, and the product of
# the likelihoods' small powers is an unbiased estimate of $p(v)$. Four such runs for each image are
# averaged.


# %%
def annealing(temperatures, hidden, pixels, count):
    """A function that estimates log p(v) of images, ``count`` runs in all."""
    shapes = {
        "v": (count, pixels), "W": (pixels, hidden), "b": (hidden,), "c": (pixels,),
        "h": (hidden, count), "uniforms": (temperatures, hidden, count),
    }  # fmt: skip
    v, W, b, c, h, uniforms = (
        pt.tensor(name, dtype="float32", shape=shape) for name, shape in shapes.items()
    )
    betas = pt.constant(np.linspace(0, 1, temperatures + 1)[1:].astype("float32"))

    def cool(beta, u, h, log_weight, v, W, b, c):
        a = h.T @ W.T + c
        log_weight += (v * a - pt.softplus(a)).sum(axis=1) / np.float32(temperatures)
        return sweep(v, W, b, c, h, u, beta), log_weight

    found = pytensor.scan(
        cool, sequences=[betas, uniforms], outputs_info=[h, pt.zeros(count, dtype="float32")],
        non_sequences=[v, W, b, c], n_steps=temperatures, strict=True, return_updates=False,
    )  # fmt: skip
    compiled = pytensor.function([v, W, b, c, h, uniforms], found[1][-1], mode="JAX")

    def run(v, W, b, c):
        rng = np.random.default_rng(0)
        repeats = count // len(v)
        h = (rng.random((hidden, count)) < expit(b)[:, None]).astype("float32")
        u = rng.random((temperatures, hidden, count), dtype="float32")
        logs = np.asarray(compiled(np.repeat(v, repeats, axis=0), W, b, c, h, u))
        return logsumexp(logs.reshape(len(v), repeats), axis=1) - np.log(repeats)

    return run


# %% [markdown]
# ## Both against the exact answer
#
# A net of eight hidden units has 256 states, whose sum is the exact likelihood. Its weights here
# are random and large.

# %%
rng = np.random.default_rng(2)
tiny = [
    x.astype("float32")
    for x in (rng.normal(0, 1.5, (16, 8)), rng.normal(0, 1, 8), rng.normal(0, 1, 16))
]
h = (rng.random((20, 8)) < expit(tiny[1])).astype("float32")
v = (rng.random((20, 16)) < expit(h @ tiny[0].T + tiny[2])).astype("float32")


def exact(v, W, b, c):
    """Exact log p(v) of each image, and its gradients, summed over images."""
    states = (np.arange(2 ** len(b))[:, None] >> np.arange(len(b)) & 1).astype(float)
    a = states @ W.T + c
    prior = states @ log_expit(b) + (1 - states) @ log_expit(-b)
    joint = prior + v @ log_expit(a).T + (1 - v) @ log_expit(-a).T
    logp = logsumexp(joint, axis=1)
    p = np.exp(joint - logp[:, None])
    error = np.einsum("ns,nd->sd", p, v) - p.sum(axis=0)[:, None] * expit(a)
    return logp, (error.T @ states, (p @ states - expit(b)).sum(axis=0), error.sum(axis=0))


logp, gradients = exact(v, *tiny)
found = annealing(100, 8, 16, 400)(v, *tiny)
print(f"log p(v), on average over 20 images: exact {logp.mean():.3f}, annealed {found.mean():.3f}")


class Drawn:
    """Random numbers for an estimate that is called outside of a sampler."""

    def __init__(self, rng):
        self.rng = rng

    def uniform(self, shape):
        """Constants drawn by NumPy."""
        return pt.constant(self.rng.random(shape, dtype="float32"))


copies = 50 if SMALL else 2000
for sweeps in (SWEEPS,) if SMALL else (1, 2, 5, 20):
    rows = np.repeat(v, copies, axis=0)
    values = estimate(sweeps)(*[pt.constant(x) for x in tiny], pt.constant(rows), Drawn(rng))
    means = [np.asarray(x) / copies for x in pytensor.function([], values, mode="JAX")()]
    off = np.sqrt(sum(np.sum((x - g) ** 2) for x, g in zip(means, gradients, strict=True)))
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
    print(f"{sweeps:2} sweeps: the mean gradient is off by {100 * off / norm:.1f} % of its length")

# %% [markdown]
# ## The model

# %%
rng = np.random.default_rng(1)
START = {
    "W": 0.1 * rng.standard_normal((PIXELS, HIDDEN)),
    "b": np.zeros(HIDDEN),
    "c": logit((train.sum(axis=0) + 1) / (N + 2)),
}
likelihood = annealing(100, HIDDEN, PIXELS, 4 * HELD_OUT)


def model(sweeps=SWEEPS):
    with pm.Model() as built:
        v = pm.Minibatch(train, batch_size=50)
        variables = [
            pm.Normal(name, shape=value.shape, initval=value.astype("float32"))
            for name, value in START.items()
        ]
        sg.GradientPotential("v", estimate(sweeps), variables, [v], total_size=N)
    return built


def last(dt, chain):
    return [dt.posterior[name].values[chain, -1] for name in START]


def sample(alpha, h, chains=CHAINS, sweeps=SWEEPS, **options):
    """Test log likelihood of each chain's last draw, and how many updates a bound has tamed."""
    with model(sweeps):
        step = sg.FLA(
            alpha=alpha, step_size=h, thin=UPDATES, scale=None, gradient="plain", batches=1,
            backend="jax", **options,
        )  # fmt: skip
        try:
            dt = pm.sample(
                step=step, draws=1, tune=0, chains=chains, random_seed=1,
                **QUIET,
            )  # fmt: skip
        except SamplingError as error:
            print(f"alpha = {alpha}, h = {h:g}: {str(error)[:80]}…")
            return np.full(chains, -np.inf), 0, None
    reproduction.count(chains * UPDATES)
    values = np.array([likelihood(test, *last(dt, chain)).mean() for chain in range(chains)])
    return values, int(dt.sample_stats["tamed_updates"].sum()), dt


def stated(values):
    """Mean over chains and its standard error."""
    if len(values) == 1 or not np.isfinite(values).all():
        return f"{values.mean():,.1f}"
    return f"{values.mean():,.1f} ± {values.std(ddof=1) / np.sqrt(len(values)):,.1f}"


# %% [markdown]
# ## Figure 6: test log likelihood against the step size
#
# Every configuration runs with the package's bounds, and again without, if a bound has acted. Where
# none has, both runs are the same, draw for draw.

# %%
ALPHAS = (2.0, 1.4) if SMALL else (2.0, 1.8, 1.6, 1.4)
STEPS = (1e-4, 3e-2) if SMALL else (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
UNTAMED = {"largest_drift": None, "largest_jump": None}
tamed, untamed, kept = {}, {}, {}
for alpha in ALPHAS:
    for h in STEPS:
        tamed[alpha, h], bound, kept[alpha, h] = sample(alpha, h)
        untamed[alpha, h] = sample(alpha, h, **UNTAMED)[0] if bound else tamed[alpha, h]
        print(
            f"alpha = {alpha}, h = {h:g}: {stated(untamed[alpha, h])}, with bounds "
            f"{stated(tamed[alpha, h])} (which acted in {bound} updates)"
        )

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axis, found, title in (
    (axes[0], untamed, "as in the paper"),
    (axes[1], tamed, "with the package's bounds"),
):
    for alpha in ALPHAS:
        means = [found[alpha, h].mean() for h in STEPS]
        axis.plot(STEPS, -np.array(means), marker="o", label=f"α = {alpha:g}")
    axis.set(xscale="log", yscale="log", xlabel="step size h", title=title)
axes[0].invert_yaxis()
axes[0].set(ylabel="− test log likelihood (better is up)")
axes[0].legend()
plt.show()
reproduction.picture(figure)

# %% [markdown]
# ## How accurate the likelihoods are
#
# Ten times as many temperatures change little at the best step sizes, and more where weights have
# become large: what annealing misses makes a likelihood look worse than it is. More sweeps for a
# gradient gain a few tenths. Both are far less than the differences on which verdicts rest.

# %%
finer = annealing(1000, HIDDEN, PIXELS, 4 * HELD_OUT)
for alpha, h in () if SMALL else ((2.0, 1e-4), (1.4, 1e-4), (1.4, 1e-3)):
    parameters = last(kept[alpha, h], 0)
    usual, fine = likelihood(test, *parameters).mean(), finer(test, *parameters).mean()
    print(f"alpha = {alpha}, h = {h:g}, first chain: {usual:.2f}, with finer annealing {fine:.2f}")
for sweeps in () if SMALL else (1, 5):
    print(f"alpha = 2, h = 0.0001, {sweeps} sweeps: {stated(sample(2.0, 1e-4, sweeps=sweeps)[0])}")

# %% [markdown]
# ## Why large steps of FLA are worse here
#
# Far jumps are what costs: with each jump bounded at 0.3 most of the loss against SGLD is gone. One
# reason is that weights of pixels that are hardly ever on are held by the prior alone, so that a
# far jump of such a weight lasts for about $1/h$ updates. There are thousands of weights.
#
# Another reading of what a step size is: the gradient is that of the mean over images in place of
# the sum (a temperature of N). FLA is the worse one there, too. No verdict rests on these runs, of
# one chain each.

# %%
if not SMALL:
    for h in (1e-3, 3e-3):
        values = sample(1.4, h, 1, largest_drift=None, largest_jump=0.3)[0]
        print(f"alpha = 1.4, h = {h:g}, jumps of at most 0.3: {stated(values)}")
    for alpha in (2.0, 1.4):
        for h in (1e-5, 1e-3):
            values = sample(alpha, h, 1, temperature=float(N), **UNTAMED)[0]
            print(f"alpha = {alpha}, h = {h:g}, mean gradient: {stated(values)}")

# %% [markdown]
# ## Untuned
#
# A model that is known by its gradient alone cannot be tuned, and a step method without a step size
# says so.

# %%
untuned = model()
for name, method in (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    with untuned:
        try:
            method(backend="jax")
        except ValueError as error:
            print(f"{name}: ValueError: {str(error)[:200]}…")

# %% [markdown]
# ## Verdicts
#
# All α are alike while steps are small. SGLD's likelihood diverges with large ones, and so does
# FLA's: at none of the step sizes from 1e-4 on is an α below 2 clearly better than SGLD. At the
# largest steps the drift of FLA is as unstable as SGLD's, because both are explicit Euler schemes
# of the same gradient, and before that its jumps cost more than SGLD's wider noise. The package's
# bounds save SGLD at the largest step, and not FLA: no drift is longer than the way back to the
# centre, and with heavy tails some coordinate always has a long way back.


# %%
def error_of(values):
    return values.std(ddof=1) / np.sqrt(CHAINS) if CHAINS > 1 else 0.0


small = [untamed[alpha, STEPS[0]].mean() for alpha in ALPHAS]
reproduction.verdict(
    "for small steps all α give similar test likelihoods",
    f"between {min(small):.1f} and {max(small):.1f} at h = {STEPS[0]:g}",
    max(small) - min(small) < 2,
)
best = {alpha: max(untamed[alpha, h].mean() for h in STEPS) for alpha in ALPHAS}
sgld = [untamed[2.0, h] for h in STEPS]
reproduction.verdict(
    "as the step grows the test likelihood of SGLD diverges",
    ", ".join(f"{stated(x)} at h = {h:g}" for h, x in zip(STEPS, sgld, strict=True)),
    best[2.0] - sgld[-1].mean() > 10,
)


def too_large(found):
    """Step sizes beyond SGLD's best one at which it has lost more than 2."""
    means = {h: found[2.0, h].mean() for h in STEPS}
    top = max(means, key=means.get)
    return [h for h in STEPS if h > top and means[top] - means[h] > 2]


def better(found, h):
    """Whether the smallest α is significantly better than SGLD."""
    one, other = found[ALPHAS[-1], h], found[2.0, h]
    return one.mean() - other.mean() > 2 * np.hypot(error_of(one), error_of(other))


for found, how in ((untamed, "as in the paper"), (tamed, "with the package's bounds")):
    lost = too_large(found)
    won = [h for h in lost if better(found, h)]
    pairs = [
        f"{stated(found[ALPHAS[-1], h])} against {stated(found[2.0, h])} at h = {h:g}" for h in lost
    ]
    reproduction.verdict(
        f"FLA with small α is more robust to large steps than SGLD ({how})",
        f"α = {ALPHAS[-1]} better at {len(won)} of the {len(lost)} large step sizes at which SGLD "
        f"has lost more than 2: {'; '.join(pairs)}",
        len(lost) > 0 and won == lost,
    )
ranges = {}
for alpha in ALPHAS:
    means = [untamed[alpha, h].mean() for h in STEPS]
    ranges[alpha] = max(means) - min(means)
reproduction.verdict(
    "the likelihood of one of the smaller α stays almost constant over the step sizes",
    ", ".join(f"a range of {size:,.0f} at α = {alpha:g}" for alpha, size in ranges.items()),
    min(size for alpha, size in ranges.items() if alpha < 2) < 5,
)
reproduction.end()
