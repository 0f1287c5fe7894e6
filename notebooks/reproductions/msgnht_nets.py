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
# # Feedforward nets of growing depth
#
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), Figure 4: Bayesian nets that read digits,
# sampled by the multivariate thermostat (mSGNHT) with the symmetric splitting (S) and with Euler's
# scheme (E). The paper says that
#
# - S converges faster than E and to something better, on training and on test data;
# - the gap grows with the depth of the net;
# - in the net of depth 4 E fails at a step size of $10^{-4}$, where S works, so that the figure
#   shows both at half of it;
# - nets of sigmoids in place of rectifiers (ReLU) behave alike.
#
# As in the paper: layers of 100 units, N(0, 1) priors of all weights, D = 5, 40 epochs, and half
# the step size from the 20th epoch on. What differs, and what the paper leaves open:
#
# | | the paper | here |
# | --- | --- | --- |
# | digits | MNIST, 60,000 to train on, 10,000 to test | 5,000 of MNIST, 4,000 to train on |
# | step size h | $10^{-4}$ | a grid; at 4,000 digits as stable as $10^{-4}$ at 60,000 is 4e-4 |
# | rows of a batch | not given | 100 |
# | depth | 2, 3, 4 | so many hidden layers |
# | biases | not given | N(0, 1), too |
# | start | not given | uniform on (−r, r), r the first of 1, ½, ¼, … with a sane potential |
# | training negative log-likelihood | not said of what | current draw, mean of 1,000 digits |
# | test accuracy | not said of what | mean prediction of all draws so far |
#
# The step size scales with the curvature. A momentum method is stable up to a step that
# falls like $1/\sqrt{N}$, and $\sqrt{60000/4000} \approx 4$. To check this rule, a
# section near the end uses 60,000 images and the paper's step size.
#
# Everything is computed in single precision. An update that gives infinite numbers is rejected by
# the package, and many of them end a chain. The paper's algorithm rejects nothing. So a run
# **fails** here if it has had one such update, or if its training loss at the end is no better than
# half of that of guessing, ½ log 10.

# %%
import logging

from dataclasses import dataclass
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from datasets import digits, fashion
from reproduction import QUIET, SMALL, Reproduction, StepSize

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
pytensor.config.floatX = "float32"
reproduction = Reproduction("msgnht_nets", "Li et al. (2016)", "Figure 4: feedforward nets")

UNITS, BATCH, EPOCHS = (10, 100, 4) if SMALL else (100, 100, 40)
SEEDS = (1, 2) if SMALL else (1, 2, 3)
DEPTHS = (2,) if SMALL else (2, 3, 4)
STEPS = (1e-3, 4e-3) if SMALL else (5e-4, 1e-3, 2e-3, 4e-3)
SCHEMES = {"S": "ssi", "E": "euler"}
CHANCE = np.log(10)


def parted(images, labels, train, test):
    """Images and labels to train on, and those to test on, in single precision."""
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype("float32"), labels[order].astype("int16")
    return (images[:train], labels[:train]), (images[-test:], labels[-test:])


images, labels, _ = digits()
share = int(0.8 * len(labels))
few = parted(images, labels, share, len(labels) - share)


# %%
def model(data, depth, activation, batch_size=BATCH):
    images, labels = data[0]
    sizes = [images.shape[1], *[UNITS] * depth, 10]
    with pm.Model() as built:
        layer, digit = pm.Minibatch(images, labels, batch_size=batch_size)
        for k in range(depth + 1):
            weights = pm.Normal(f"w{k}", shape=(sizes[k], sizes[k + 1]))
            layer = layer @ weights + pm.Normal(f"b{k}", shape=sizes[k + 1])
            if k < depth:
                layer = pt.maximum(layer, 0) if activation == "ReLU" else pt.sigmoid(layer)
        pm.Categorical("digit", logit_p=layer, observed=digit, total_size=len(labels))
    return built


def log_probabilities(draw, depth, activation, rows):
    layer = rows
    for k in range(depth + 1):
        layer = layer @ draw[f"w{k}"] + draw[f"b{k}"]
        if k < depth:
            layer = np.maximum(layer, 0) if activation == "ReLU" else 0.5 + np.tanh(layer / 2) / 2
    layer = layer - layer.max(axis=1, keepdims=True)
    return layer - np.log(np.exp(layer).sum(axis=1, keepdims=True))


def learning_curves(posterior, data, depth, activation):
    """Test accuracy in % and training negative log-likelihood after each draw."""
    (X, y), (X_test, y_test) = ([part[:1000] for part in pair] for pair in data)
    values = {name: variable.values[0] for name, variable in posterior.data_vars.items()}
    accuracy, loss, probability = [], [], 0.0
    for i in range(posterior.sizes["draw"]):
        draw = {name: value[i] for name, value in values.items()}
        probability = probability + np.exp(log_probabilities(draw, depth, activation, X_test))
        accuracy.append(100 * np.mean(probability.argmax(axis=1) == y_test))
        log_p = log_probabilities(draw, depth, activation, X)
        loss.append(-log_p[np.arange(len(y)), y].mean())
    return np.array(accuracy), np.array(loss)


@dataclass
class Run:
    """Curves over the draws, the number of updates that were not finite, and whether it failed."""

    accuracy: np.ndarray
    loss: np.ndarray
    rejected: float

    @property
    def failed(self):
        return bool(self.rejected > 0 or not self.loss[-1] < CHANCE / 2)


def runs(data, depth, activation, scheme, steps, seeds, epochs, thin):
    """Return a run for each step size and seed; one compilation serves them all."""
    updates = epochs * (len(data[0][1]) // BATCH)
    schedule = StepSize(factor=lambda t: np.where(t < updates // 2, 1.0, 0.5))
    found = {}
    with model(data, depth, activation):
        step = sg.MSGNHT(
            integrator=SCHEMES[scheme], thermostat_mass=1, diffusion=5, step_size=schedule,
            thin=thin, scale=None, gradient="plain", batches=1, backend="jax",
        )  # fmt: skip
        for h, seed in product(steps, seeds):
            schedule.h = h
            try:
                dt = pm.sample(
                    step=step, draws=updates // thin, tune=0, chains=1, random_seed=seed,
                    **QUIET,
                )  # fmt: skip
            except pm.exceptions.SamplingError:
                nothing = np.full(updates // thin, np.nan)
                found[h, seed] = Run(nothing, nothing, np.inf)
                continue
            reproduction.count(updates)
            rejected = dt.sample_stats["rejected_updates"].values.sum()
            found[h, seed] = Run(*learning_curves(dt.posterior, data, depth, activation), rejected)
    return found


def several(found, h):
    """The runs of a step size, one for each seed."""
    return [run for (step_size, _), run in found.items() if step_size == h]


# %% [markdown]
# ## Rectifiers
#
# Solid lines are S, broken ones E, each the median over the seeds. A run that the package ended has
# no line. There is a point for every second epoch.

# %%
thin = 2 * (share // BATCH)
found = {
    (depth, scheme): runs(few, depth, "ReLU", scheme, STEPS, SEEDS, EPOCHS, thin)
    for depth in DEPTHS
    for scheme in SCHEMES
}


# %%
def drawn(found, columns, steps, epochs):
    figure, axes = plt.subplots(
        2, len(columns), figsize=(1 + 3 * len(columns), 6), layout="constrained", squeeze=False,
        sharex=True, sharey="row",
    )  # fmt: skip
    for (key, title), (above, below) in zip(columns.items(), axes.T, strict=True):
        above.set(title=title, ylim=(30, 100))
        below.set(xlabel="epoch", yscale="log")
        for color, h in enumerate(steps):
            for scheme, line in (("S", "-"), ("E", "--")):
                chosen = [r for r in several(found[key, scheme], h) if np.isfinite(r.rejected)]
                if not chosen:
                    continue
                count = len(chosen[0].loss)
                style = {"color": f"C{color}", "ls": line, "label": f"{scheme}, h = {h:g}"}
                x = epochs * np.arange(1, count + 1) / count
                above.plot(x, np.median([r.accuracy for r in chosen], axis=0), **style)
                below.plot(x, np.median([r.loss for r in chosen], axis=0), **style)
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel("training −log likelihood")
    axes[0, 0].legend(fontsize="small")
    plt.show()
    return figure


figure = drawn(found, {depth: f"depth {depth}" for depth in DEPTHS}, STEPS, EPOCHS)
reproduction.picture(figure)


def told(found, keys, steps):
    """Print for each net and step size how the runs of both schemes went."""
    for key, h in product(keys, steps):
        parts = []
        for scheme in SCHEMES:
            of_h = several(found[key, scheme], h)
            loss = np.median([np.inf if np.isnan(r.loss[-1]) else r.loss[-1] for r in of_h])
            accuracy = np.median([np.nan_to_num(r.accuracy[-1], nan=10.0) for r in of_h])
            parts.append(
                f"{scheme} {sum(r.failed for r in of_h)} of {len(of_h)} failed, "
                f"{accuracy:.1f} %, loss {loss:.2f}"
            )
        print(f"    depth {key}, h = {h:g}: " + "; ".join(parts))


told(found, DEPTHS, STEPS)

# %% [markdown]
# A learning curve is summed up by its mean over the epochs, which is better for a faster and for a
# better end alike. Where a run was ended by the package it has the accuracy and the loss of
# guessing, and no loss counts for more than that of guessing. Differences are S minus E, with
# standard errors over the seeds.


# %%
def mean_curves(found, key, scheme, h):
    """Mean accuracy and loss of each seed's curve, shape (2, seeds)."""
    of_h = several(found[key, scheme], h)
    accuracy = [np.nan_to_num(r.accuracy, nan=10.0).mean() for r in of_h]
    loss = [np.minimum(np.nan_to_num(r.loss, nan=CHANCE), CHANCE).mean() for r in of_h]
    return np.array([accuracy, loss])


def gap(found, key, h):
    """Gain of S over E in accuracy and in loss, and their standard errors."""
    s, e = (mean_curves(found, key, scheme, h) for scheme in SCHEMES)
    error = np.hypot(*(x.std(axis=1, ddof=1) / np.sqrt(x.shape[1]) for x in (s, e)))
    return (s.mean(axis=1) - e.mean(axis=1)) * [1, -1], error


def compared(found, keys, steps):
    """Cells in which S is better than E in accuracy or loss, and those in which it is worse."""
    better, worse = [], []
    for key, h in product(keys, steps):
        gain, error = gap(found, key, h)
        cell = f"depth {key}, h = {h:g}"
        if (gain > 2 * error).any():
            better.append(cell)
        if (gain < -2 * error).any():
            worse.append(cell)
    return better, worse


better, worse = compared(found, DEPTHS, STEPS)
cells = len(DEPTHS) * len(STEPS)
reproduction.verdict(
    "S is at least as good as E for every depth and step size, in training and in test",
    f"S worse by more than two standard errors in {len(worse)} of {cells} "
    f"({'; '.join(worse) or 'none'})",
    not worse,
)
reproduction.verdict(
    "S converges faster than E and to something better",
    f"S better by more than two standard errors in {len(better)} of {cells} "
    f"({'; '.join(better) or 'none'})",
    len(better) > cells / 2,
)
largest = max(STEPS)
gains = {depth: gap(found, depth, largest) for depth in DEPTHS}
reproduction.verdict(
    "S is better than E at large step sizes",
    f"mean accuracy at h = {largest:g} larger by "
    + ", ".join(f"{g[0]:.1f} ± {se[0]:.1f} % (depth {k})" for k, (g, se) in gains.items()),
    all(g[0] > 2 * se[0] for g, se in gains.values()),
)

# %% [markdown]
# The gap for each depth is that at the step sizes at which neither scheme failed, so that a failure
# is not counted twice: the next verdict is on failures.

# %%
sound = {
    depth: [
        h for h in STEPS if not any(r.failed for s in SCHEMES for r in several(found[depth, s], h))
    ]
    for depth in DEPTHS
}
gains = {
    depth: [np.mean([gap(found, depth, h)[0][0] for h in steps]),
            np.sqrt(np.sum([gap(found, depth, h)[1][0] ** 2 for h in steps])) / len(steps)]
    for depth, steps in sound.items() if steps
}  # fmt: skip
depths = sorted(gains)
reproduction.verdict(
    "the gap grows with depth",
    "a mean accuracy of S above that of E by "
    + (", ".join(f"{g:.2f} ± {se:.2f} % (depth {k})" for k, (g, se) in gains.items()) or "nothing")
    + " at steps at which no run failed",
    len(depths) > 1
    and bool(np.all(np.diff([gains[k][0] for k in depths]) > 0))
    and gains[depths[-1]][0] - gains[depths[0]][0]
    > 2 * np.hypot(gains[depths[0]][1], gains[depths[-1]][1]),
)


def failures(found, key, steps):
    """How many runs of each scheme failed, for each step size."""
    return {h: [sum(r.failed for r in several(found[key, s], h)) for s in SCHEMES] for h in steps}


deepest = failures(found, max(DEPTHS), STEPS)
reproduction.verdict(
    "in the deepest net E fails at a step size where S works",
    "failed: "
    + ", ".join(f"S {s} and E {e} of {len(SEEDS)} at h = {h:g}" for h, (s, e) in deepest.items()),
    any(s == 0 and e == len(SEEDS) for s, e in deepest.values()),
)

# %% [markdown]
# What became of the runs with updates that were not finite? The package ended some.
# Others went on: updates are rejected until a momentum that is too large has become
# smaller.

# %%
for scheme in SCHEMES:
    every = [run for depth in DEPTHS for run in found[depth, scheme].values()]
    met = [run for run in every if run.rejected > 0]
    ended = [run for run in met if np.isinf(run.rejected)]
    lost = [run for run in met if run.loss[-1] > CHANCE / 2]
    print(
        f"    {scheme}: of {len(every)} runs {len(met)} met updates that were not finite; "
        f"{len(ended)} of these were ended, {len(lost)} went on with a training loss near guessing"
    )

# %% [markdown]
# ## Sigmoids

# %%
ACTIVATION_DEPTHS = DEPTHS[-1:]
WIDE = STEPS[-2:]
sigmoids = {
    (depth, scheme): runs(few, depth, "sigmoid", scheme, WIDE, SEEDS, EPOCHS, thin)
    for depth in ACTIVATION_DEPTHS
    for scheme in SCHEMES
}
told(sigmoids, ACTIVATION_DEPTHS, WIDE)
better, worse = compared(sigmoids, ACTIVATION_DEPTHS, WIDE)
reproduction.verdict(
    "nets of sigmoids give consistent results: S is better than E",
    f"at the two largest steps in the deepest net S better by more than two standard errors in "
    f"{len(better)} of {len(WIDE)}, worse in {len(worse)}",
    len(better) == len(WIDE),
)

# %% [markdown]
# ## The paper's number of images and its step size
#
# 60,000 images of Fashion-MNIST, as large as those of MNIST and as many, the deepest net, the
# paper's step size of 1e-4 and twice as much. For the sake of time eight epochs, not 40. (The small
# version has no new runs here.)

# %%
many = few if SMALL else parted(*fashion()[:2], 60_000, 1_000)
long_steps, long_seeds, long_epochs = (
    ((1e-3,), SEEDS, EPOCHS) if SMALL else ((1e-4, 2e-4), (1, 2), 8)
)
half_epoch = len(many[0][1]) // BATCH // 2
depth = max(DEPTHS)
if SMALL:
    long = found
else:
    long = {
        (depth, scheme): runs(
            many, depth, "ReLU", scheme, long_steps, long_seeds, long_epochs, half_epoch
        )
        for scheme in SCHEMES
    }
drawn(long, {depth: f"depth {depth}, {len(many[0][1]):,} images"}, long_steps, long_epochs)
told(long, [depth], long_steps)

# %%
counts = failures(long, depth, long_steps[:1])
(s, e), first = counts[long_steps[0]], long_steps[0]
gain, error = gap(long, depth, first)
reproduction.verdict(
    "in the net of depth 4 E fails at h = 1e-4 with 60,000 images, where S works",
    f"S {s} and E {e} of {len(long_seeds)} failed within {long_epochs} epochs (Fashion-MNIST), a "
    f"mean accuracy of S {gain[0]:.2f} ± {error[0]:.2f} % above that of E",
    s == 0 and e == len(long_seeds),
)

# %% [markdown]
# ## Why the two schemes are so alike here
#
# E as the paper prints it is θ ← θ + hp, then p ← (1 − hξ)p − h∇U(θ) + noise, then ξ ← ξ + h(p² −
# 1): its gradient is taken at the new θ. S moves θ and ξ by half a step, then p, then θ and ξ by
# half a step with the new p. The halves at the end of one update and at the start of the next have
# the same p, so together they are one whole step of E. What is left of the difference is the update
# of p, $e^{-h\xi}p + e^{-h\xi/2}(-h\nabla U(\theta) + \text{noise})$ in S. So S is E with a factor
# of $e^{-h\xi}$ in place of 1 − hξ, one of $e^{-h\xi/2}$ in place of 1, and draws that are taken in
# the middle of a drift. Where hξ is small, as at D = 5 and h = 0.001, the schemes are stable up to
# the same curvature, and steep gradients throw both off. They differ where ξ grows to 1/h, as it
# does after momenta have exploded: S then brakes them, and 1 − hξ is negative and large.

# %% [markdown]
# ## Untuned
#
# These runs have the package's defaults on a net of depth 2 in single precision:
# batches of 500, nothing set. The small version leaves this out.

# %%
UNTUNED = {"sg.MSGNHT()": sg.MSGNHT, "sg.CoRVSGLD()": sg.CoRVSGLD}
for name, method in ({} if SMALL else UNTUNED).items():
    with model(few, 2, "ReLU", batch_size=500):
        try:
            dt = pm.sample(
                step=method(backend="jax"), draws=20, tune=100, chains=1,
                random_seed=1, **QUIET,
            )  # fmt: skip
        except (pm.exceptions.SamplingError, ValueError) as error:
            print(f"{name} ends with: {str(error).split('. ')[0]}.")
            continue
    accuracy, loss = learning_curves(dt.posterior, few, 2, "ReLU")
    print(f"{name}: accuracy {accuracy[-1]:.1f} %, training loss {loss[-1]:.2f}")

# %%
reproduction.end()
