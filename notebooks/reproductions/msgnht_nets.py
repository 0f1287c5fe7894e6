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
# # Nets of growing depth
#
# [Li et al. (2016)](https://arxiv.org/abs/1512.07662), Figure 4: Bayesian nets that read digits,
# sampled by the multivariate thermostat with the symmetric splitting (mSGNHT-S) and with Euler's
# scheme (mSGNHT-E). The paper says
#
# 1. that S converges faster than E and to something better, in training and in test;
# 2. that the gap grows with the depth of the net;
# 3. that in the net of depth 4 E fails at the step size $10^{-4}$, where S works well, so that the
#    figure has half of it there;
# 4. that even then E is failing as learning goes on, and works in the end only because the step
#    size is halved;
# 5. that nets of sigmoids (not run here) and convolutional nets give consistent results.
#
# | | the paper | here |
# | --- | --- | --- |
# | digits | MNIST, 60,000 to train on, 10,000 to test | the same |
# | step size h | 1e-4; 5e-5 at depth 4 | these; at depth 4 also 1e-4, 4e-4 |
# | updates | 40 epochs, h halved after 20 | 12 epochs, h halved after 6 |
# | units of a layer, D | 100, 5 | 100, 5 |
# | seeds | not given, one curve each | two |
# | rows of a batch | not given | 100 |
# | prior, start | not given | N(0, 1) of weights and biases, a uniform start |
#
# The last two lines have the values of the authors' [program](https://github.com/ChunyuanLI/pSGLD)
# for nets and MNIST of the same year. Its start is that of Glorot: uniform between $\pm\sqrt{6 /
# (\text{inputs} + \text{outputs} + 1)}$ for weights and biases. A third sampler is the thermostat
# that all coordinates share (SGNHT), from which mSGNHT was made.

# %%
import logging

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from datasets import digits
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, over_seeds
from scipy.special import log_softmax

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
pytensor.config.floatX = "float32"
reproduction = Reproduction("msgnht_nets", "Li et al. (2016)", "Figure 4: nets of growing depth")

images, labels, _ = digits()
images, labels = images.astype("float32"), labels.astype("int16")
N, BATCH = (1500, 100) if SMALL else (60_000, 100)
X, y, X_test, y_test = images[:N], labels[:N], images[N:], labels[N:]
SIDE = int(images.shape[1] ** 0.5)
UNITS, EPOCHS, SEEDS = (10, 4, (1, 2)) if SMALL else (100, 12, (1, 2))
COMMON, LARGE = (4e-4, 1.6e-3) if SMALL else (1e-4, 4e-4)
STEPS = {2: (COMMON,), 3: (COMMON,), 4: (5e-5, COMMON, LARGE)}
STEPS = {2: (COMMON, LARGE)} if SMALL else STEPS
UPDATES = EPOCHS * (N // BATCH)
print(f"{N:,} digits, {EPOCHS} epochs of {N // BATCH} updates")

# %% [markdown]
# ## The model and the call
#
# A net is its depth, or "convolutional": two layers of 8 and 16 channels, whose window of 5 by 5
# pixels moves by 2, and a layer of 100 units. The function `scores` serves the model and, with
# NumPy, its predictions.

# %%
WINDOW = 3 if SMALL else 5


def moved(side):
    """Places of a window that moves by 2."""
    return (side - WINDOW) // 2 + 1


def sizes(net):
    """Inputs and outputs of each layer."""
    if net == "convolutional":
        left = moved(moved(SIDE))
        return [(WINDOW**2, 8), (8 * WINDOW**2, 16), (16 * left**2, UNITS), (UNITS, 10)]
    return list(zip([SIDE**2, *[UNITS] * net], [*[UNITS] * net, 10], strict=True))


def scores(net, values, rows, xp):
    """Unnormalised log probabilities of the ten digits; xp is NumPy or PyTensor."""
    layer, side, corners = rows, SIDE, list(product(range(WINDOW), repeat=2))
    for k, (inputs, _) in enumerate(sizes(net)):
        if net == "convolutional" and k < 2:
            layer = layer.reshape((-1, side, side, inputs // WINDOW**2))
            side = moved(side)
            windows = [
                layer[:, i : i + 2 * side - 1 : 2, j : j + 2 * side - 1 : 2] for i, j in corners
            ]
            layer = xp.concatenate(windows, axis=-1)
        layer = layer.reshape((-1, inputs)) @ values[f"w{k}"] + values[f"b{k}"]
        if k < len(sizes(net)) - 1:
            layer = xp.maximum(layer, 0)
    return layer


def start(net, seed=0):
    rng, found = np.random.default_rng(seed), {}
    for k, size in enumerate(sizes(net)):
        bound = np.sqrt(6 / (sum(size) + 1))
        for name, shape in ((f"w{k}", size), (f"b{k}", size[1:])):
            found[name] = rng.uniform(-bound, bound, shape).astype("float32")
    return found


def model(net):
    with pm.Model() as built:
        rows, digit = pm.Minibatch(X, y, batch_size=BATCH)
        values = {name: pm.Normal(name, shape=x.shape) for name, x in start(net).items()}
        pm.Categorical("digit", logit_p=scores(net, values, rows, pt), observed=digit, total_size=N)
    return built


METHODS = {"S": (sg.MSGNHT, "ssi"), "E": (sg.MSGNHT, "euler"), "SGNHT": (sg.SGNHT, "ssi")}
halved = StepSize(factor=lambda t: np.where(t < UPDATES // 2, 1.0, 0.5))
curves = {}


def sample(net, method, steps):
    """Add the learning curves of each step size, one for each seed, to what is found."""
    cls, integrator = METHODS[method]
    with model(net):
        step = cls(
            integrator=integrator, thermostat_mass=1, diffusion=5, step_size=halved,
            thin=N // BATCH, scale=None, gradient="plain", batches=1, backend="jax",
        )  # fmt: skip
        for halved.h in steps:
            found, heat = [], np.nan
            for seed in SEEDS:
                try:
                    dt = pm.sample(
                        step=step, draws=EPOCHS, tune=0, chains=1, random_seed=seed,
                        initvals=start(net, seed), **QUIET,
                    )  # fmt: skip
                    found.append(learning(net, dt))
                    heat = halved.h * float(dt.sample_stats["thermostat"].mean())
                except pm.exceptions.SamplingError:
                    found.append(np.tile([[10.0], [np.log(10)]], EPOCHS))
                reproduction.count(UPDATES)
            found = np.array(found).swapaxes(0, 1)
            curves[net, method, halved.h] = found
            half, end = found[:, :, EPOCHS // 2 - 1], found[:, :, -1]
            print(
                f"net {net}, {method}, h = {halved.h:g}: accuracy half way {half[0].round(2)}, at "
                f"the end {end[0].round(2)}; loss {half[1].round(3)}, {end[1].round(3)}; mean hξ "
                f"{heat:.1e}", flush=True,
            )  # fmt: skip


# %% [markdown]
# Curves are those of single draws, one an epoch: the accuracy in % on the test digits and the
# training −log likelihood, a mean of 2,000 digits. A run that is not finite has the accuracy and
# the loss of guessing, 10 % and log 10. The mean of hξ is the number by which the two schemes
# differ, as is shown further down.


# %%
def predictions(net, dt):
    """Log probabilities of the digits in training and test, for each draw."""
    for i in range(dt.posterior.sizes["draw"]):
        draw = {name: dt.posterior[name].values[0, i] for name in start(net)}
        for_test = X_test[:2000] if net == "convolutional" else X_test
        yield [log_softmax(scores(net, draw, part, np), axis=1) for part in (X[:2000], for_test)]


def learning(net, dt):
    """Accuracy and loss, shape (2, epochs)."""
    return np.transpose([
        (
            100 * np.mean(test.argmax(axis=1) == y_test[: len(test)]),
            -train[np.arange(len(train)), y[: len(train)]].mean(),
        )
        for train, test in predictions(net, dt)
    ])  # fmt: skip


# %% [markdown]
# ## Figure 4
#
# The first three columns have the paper's step sizes. The fourth has the largest one in the deepest
# net, where learning fails. Each line is a seed.

# %%
PAPER = {depth: 5e-5 if depth == 4 else COMMON for depth in STEPS}
SHALLOW, DEEPEST = min(STEPS), max(STEPS)
for depth, method in product(STEPS, ("S", "E")):
    sample(depth, method, STEPS[depth])
sample(DEEPEST, "SGNHT", (PAPER[DEEPEST],))

columns = [*PAPER.items(), (DEEPEST, LARGE)]
figure, axes = plt.subplots(2, len(columns), figsize=(3 * len(columns), 6), layout="constrained")
epochs = np.arange(1, EPOCHS + 1)
for (depth, h), pair in zip(columns, axes.T, strict=True):
    for method, style in {"S": "C0-", "E": "C3--", "SGNHT": "C2:"}.items():
        for axis, lines in zip(pair, curves.get((depth, method, h), ()), strict=False):
            name = method if method == "SGNHT" else f"mSGNHT-{method}"
            axis.plot(epochs, lines.T, style, label=[name, *["_"] * (len(lines) - 1)])
            axis.axvline(EPOCHS / 2, color="grey", linewidth=0.5)
    pair[0].set(title=f"depth {depth}, h = {h:g}")
    pair[1].set(xlabel="epoch (h halved at the line)")
axes[0, 0].set_ylabel("test accuracy, %")
axes[1, 0].set_ylabel("training −log likelihood")
axes[0, -2].legend(loc="lower right")
plt.show()
reproduction.picture(figure)

# %% [markdown]
# ## A convolutional net

# %%
for method in ("S", "E"):
    sample("convolutional", method, [COMMON])

# %% [markdown]
# ## Why the two schemes are so alike
#
# E as the paper prints it is θ ← θ + hp, then p ← (1 − hξ)p − h∇U(θ) + noise, then ξ ← ξ + h(p² −
# 1). S moves θ and ξ by half a step, then p, then θ and ξ by another half. The half at the end of
# one update and that at the start of the next have the same p: together they are one whole step of
# E. What differs is p: S has $e^{-h\xi}p + e^{-h\xi/2}(-h\nabla U + \text{noise})$, E has (1 − hξ)
# and 1 in place of the exponentials. At D = 5 and $h = 10^{-4}$ the mean of hξ is 0.0005, as
# printed above: the two are one map to three digits, and both are unstable at the same curvature.
# They differ once momenta have exploded and ξ has grown to 1/h: 1 − hξ is then large and negative,
# where S brakes. Such a chain of S is finite, and has lost what it had learned.
#
# So the paper's picture exists at 4e-4, four times the step size at which the paper's E failed.
# Both seeds of S and one of E are at 94 to 95 % at the end. The other seed of E ends at guessing.
# Two seeds are too few to tell the scheme from chance.
#
# ## With nothing set
#
# The whole data, depth 2, single precision, one chain of 20 draws. A chain is tuned before its
# first draw: it descends from its own start, and lowers its step size by the curvature on the way.
# A draw then has so many updates that it may cost two passes over the data.

# %%
for name, method in () if SMALL else (("sg.MSGNHT()", sg.MSGNHT), ("sg.CoRVSGLD()", sg.CoRVSGLD)):
    best = curves[2, "S", PAPER[2]][0, :, -1]
    with reproduction.untuned(name) as gives:
        with model(2):
            dt = pm.sample(step=method(), draws=20, tune=0, chains=1, random_seed=1, **QUIET)
        mean = np.mean([np.exp(test) for _, test in predictions(2, dt)], axis=0)
        accuracy = 100 * np.mean(mean.argmax(axis=1) == y_test)
        gives(
            f"a test accuracy of {accuracy:.2f} %, with the paper's settings {best.mean():.2f} %",
            accuracy >= best.min(),
        )

# %% [markdown]
# ## Verdicts
#
# Gaps are S minus E of the same seed, that is of the same start, batches and noise. A curve is
# summed up by its mean over the epochs, which is better for a faster and for a better end alike.


# %%
def gaps(net, h):
    """How much better S is for each seed, in mean accuracy and in mean loss, shape (2, seeds)."""
    better = curves[net, "S", h] - curves[net, "E", h]
    return better.mean(axis=-1) * np.array([[1], [-1]])


def stated(values, digits=2):
    mean, error = over_seeds(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def verdict(says, seen, holds):
    reproduction.verdict(says, seen, holds, seeds=len(SEEDS))


ahead = np.ravel([(gaps(k, h) > 0).all(axis=0) for k, steps in STEPS.items() for h in steps])
share, error = ahead.mean(), np.sqrt(ahead.mean() * (1 - ahead.mean()) / len(ahead))
each = (f"{stated(gaps(k, h)[0])} % and {stated(gaps(k, h)[1], 3)} ({k})" for k, h in PAPER.items())
verdict(
    "mSGNHT-S consistently converges faster, better than mSGNHT-E for both training and testing",
    f"S ahead in both in {share:.2f} ± {error:.2f} of {len(ahead)} runs (consistently is 1); at "
    f"the paper's step sizes accuracy and loss are better by {', '.join(each)} (depth)",
    True if share == 1 else None if 1 - share < 2 * error else False,
)
verdict(
    "the gaps between mSGNHT-S and mSGNHT-E become larger in deeper models",
    f"at h = {COMMON:g} a gap in accuracy of "
    + ", ".join(f"{stated(gaps(k, COMMON)[0])} % at depth {k}" for k in STEPS),
    beyond(*over_seeds(gaps(DEEPEST, COMMON)[0] - gaps(SHALLOW, COMMON)[0])),
)
ends = {method: curves[DEEPEST, method, COMMON][0, :, -1] for method in ("S", "E")}
worked = beyond(*over_seeds(ends["E"]), 10)
verdict(
    "in the 4-layer net mSGNHT-E failed at h = 1e-4, while mSGNHT-S worked well",
    f"at the end E reads {stated(ends['E'])} % of the test digits, S {stated(ends['S'])} %; "
    "guessing reads 10 %",
    None if worked is None else not worked,
)


def late(method, h):
    """How much of the training loss is regained from its least value to the halving, each seed."""
    loss = curves[DEEPEST, method, h][1, :, : EPOCHS // 2]
    return loss[:, -1] - loss.min(axis=1)


rises = (
    f"{stated(late('E', h))} for E and {stated(late('S', h))} for S at h = {h:g}"
    for h in (PAPER[DEEPEST], LARGE)
)
verdict(
    "in the 4-layer net mSGNHT-E is failing at h = 5e-5 as learning progresses; it works only "
    "since the step size is halved; mSGNHT-S is robust",
    f"until the halving the training loss rises above its least by {', '.join(rises)}",
    beyond(*over_seeds(late("E", PAPER[DEEPEST]) - late("S", PAPER[DEEPEST]))),
)
accuracy, loss = gaps("convolutional", COMMON)
verdict(
    "for convolutional nets results are consistent: mSGNHT-S is better than mSGNHT-E",
    f"at h = {COMMON:g} accuracy better by {stated(accuracy)} %, loss by {stated(loss, 3)}",
    beyond(*over_seeds(accuracy)),
)
reproduction.end()
