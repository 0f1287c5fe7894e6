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
# # A binary neural net
#
# This page repeats Figure 4 of [Yokoi, Otsuka and Sato
# (2019)](https://arxiv.org/abs/1903.02750): a net whose weights w are sampled in (−1, 1), with a
# stretched Beta prior that is unbounded at both bounds, and replaced by their signs to predict. It
# compares the change of random variable (CoRV) by three maps with Langevin dynamics that mirrors at
# the bounds. The paper says that CoRV predicts better, that mirroring learns more slowly on both
# data sets, and that the transforms make large step sizes stable.
#
# As in the paper: all 70,000 images, split 8 : 1 : 1, 50 hidden units, rectifiers (ReLU), a
# softmax, step sizes by TPE for the least validation loss, the mean of the predictions over the
# draws so far, a draw for each epoch. What differs or is left open:
#
# | | the paper | here |
# | --- | --- | --- |
# | epochs on MNIST, on Fashion-MNIST | 100, 300 | 12, 6 |
# | trials of TPE | 100 on each data set | 8 of 3 epochs on MNIST, h in 1e-6 to 1e-3 |
# | Beta prior | both parameters below 1, no values | both ½ |
# | rows of a batch, biases, start | not given | 100, none, all w = 0 |
# | weights of the losses | not said; signs for the accuracy | test: signs, and w; validation: w |
# | precision | not given | double; single in a section of its own |
# | mirroring | not given | as often as it takes; the authors' form beside it |
#
# A weight is w = 2b − 1 with b ~ Beta(½, ½), and mirroring b with a step h is mirroring w with 4h.
# `sg.MirrorSGLD` refuses a density that is unbounded where it mirrors, because it samples a wrong
# distribution there at every step size. `unbounded="allow"` overrides this.

# %%
import logging
import time

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from datasets import digits, fashion
from pymc.pytensorf import intX
from reproduction import QUIET, SMALL, Reproduction, StepSize, beyond, over_seeds, search
from scipy.special import softmax

import pymc_sgmcmc as sg

logging.getLogger("pymc").setLevel(logging.ERROR)
run = Reproduction("corv_binary_net", "Yokoi, Otsuka, Sato (2019)", "Figure 4: a binary neural net")
UNITS, BATCH, ROWS, SHORT = (10, 100, 1_000, 2) if SMALL else (50, 100, 70_000, 3)
UPDATES = int(0.8 * ROWS) // BATCH  # of an epoch
EPOCHS = {"MNIST": 4} if SMALL else {"MNIST": 12, "Fashion-MNIST": 6}
TRIALS, SEEDS = (2, (1, 2)) if SMALL else (8, (1, 2, 3))
ONE = {**QUIET, "chains": 1}
ENDED = (np.log(10), np.log(10), 10.0)  # what a chain that ended has learned: nothing
ms = {}  # of an update of each method, at best


# %%
def model(images, labels):
    with pm.Model() as built:
        batch, label = pm.Minibatch(images, intX(labels), batch_size=BATCH)
        b0 = pm.Beta("b0", 0.5, 0.5, shape=(images.shape[1], UNITS))
        b1 = pm.Beta("b1", 0.5, 0.5, shape=(UNITS, 10))
        logits = pt.maximum(batch @ (2 * b0 - 1), 0) @ (2 * b1 - 1)
        pm.Categorical("label", logit_p=logits, observed=label, total_size=len(labels))
    return built


class AuthorsMirror(sg.MirrorSGLD):
    """One reflection; what is still outside is drawn anew from the uniform distribution."""

    def update(self, position, extra, gradient, step_size, noise):
        moved = position - step_size * gradient(position) + (2 * step_size) ** 0.5 * noise.normal()
        once = moved.map(lambda b: pt.switch(b > 1, 2 - b, abs(b)))
        return once.map(lambda b, u: pt.switch((b < 0) | (b > 1), u, b), noise.uniform()), extra


METHODS = {
    "mirror": (sg.MirrorSGLD, {"unbounded": "allow"}),
    "authors' mirror": (AuthorsMirror, {"unbounded": "allow"}),
}
MAPS = ("softsign", "arctan", "sigmoid")[: 1 if SMALL else 3]
for name in MAPS:
    f = getattr(sg.transforms, name.title())()
    METHODS[name] = sg.CoRVSGLD, {"integrator": "euler", "transforms": {"b0": f, "b1": f}}
# w'(φ)² at w = 0: a step h in φ moves w there as one of h w'(φ)² in w
IN_W = {"arctan": 4 / np.pi**2, "sigmoid": 1 / 4}  # 1 for the others


def sampler(name, parts):
    """Return a function that gives learning curves of shape (seeds, epochs, 3)."""
    (method, own), schedule = METHODS[name], StepSize()
    plain = {"scale": None, "gradient": "plain", "batches": 1, "backend": "jax"}
    with model(*parts[0]) as built:
        step = method(step_size=schedule, thin=UPDATES, **plain, **own)

    def sample(h, epochs, seeds=SEEDS, part=2):
        schedule.h = h / 4 if "mirror" in name else h  # mirroring moves b
        curves = np.tile(ENDED, (len(seeds), epochs, 1))
        for curve, seed in zip(curves, seeds, strict=True):
            began = time.perf_counter()
            try:
                dt = pm.sample(epochs, tune=0, model=built, step=step, random_seed=seed, **ONE)
            except pm.exceptions.SamplingError:
                continue
            run.count(epochs * UPDATES)
            spent = 1e3 * (time.perf_counter() - began)
            ms[name] = min(spent / epochs / UPDATES, ms.get(name, np.inf))
            curve[:] = learning_curves(dt.posterior, *parts[part])
        return curves

    return sample


def learning_curves(posterior, images, labels):
    """Loss by signs and by w, and accuracy by signs in %, of the mean prediction so far."""
    sums, curves = [0.0, 0.0], []
    for i in range(posterior.sizes["draw"]):
        w = [2 * posterior[b].values[0, i].astype("float32") - 1 for b in ("b0", "b1")]
        signs = [np.copysign(np.float32(1), x) for x in w]
        for k, (first, second) in enumerate((signs, w)):
            sums[k] = sums[k] + softmax(np.maximum(images @ first, 0) @ second, axis=1)
        right = [p[np.arange(len(labels)), labels] / (i + 1) for p in sums]
        losses = [-np.log(np.maximum(p, 1e-10)).mean() for p in right]
        curves.append([*losses, 100 * np.mean(sums[0].argmax(axis=1) == labels)])
    return np.array(curves)


def parted(images, labels, _):
    """Return images and labels for training, validation and test."""
    order = np.random.default_rng(0).permutation(len(labels))[:ROWS]
    parts = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    return [(images[part].astype("float32"), labels[part]) for part in parts]


data = {where: parted(*(digits if where == "MNIST" else fashion)()) for where in EPOCHS}

# %% [markdown]
# TPE minimises the validation loss of w on MNIST. The authors' form of mirroring has the step size
# of mirroring. (Their public program for Figure 1 reflects once, then draws from the uniform.) On
# MNIST each method also runs shortly with ten times the step size of mirroring, in units of w.

# %%
found, large, best = {}, {}, {}
for where, parts in data.items():
    for name in ("mirror", *MAPS, *(["authors' mirror"] if where == "MNIST" else [])):
        sample = sampler(name, parts)
        like, in_w = name.split()[-1], IN_W.get(name, 1)
        if like not in best:
            loss = lambda h, f=sample: f(h, SHORT, (0,), 1)[0, -1, 1]  # noqa: E731
            tried = search(loss, 1e-6, 1e-3, TRIALS, first=1e-5)
            best[name] = next(iter(tried))
            print("  tried:", ", ".join(f"{h:.1e} {loss:.3f}" for h, loss in tried.items()))
            large[name] = sample(10 * best["mirror"] / in_w, SHORT)
        h = best[like]
        found[where, name] = sample(h, EPOCHS[where])
        print(f"{where}, {name}: step {h:.1e}, {h * in_w:.1e} in w; {ms[name]:.2f} ms/update")

# %% [markdown]
# ## Learning curves
#
# As in Figure 4 of the paper: test loss above, test accuracy below. The paper's claim: «mirroring
# showed a slower learning curve for both datasets». Lines are means over the seeds, shades reach
# from the least to the greatest. Dotted: the loss with the weights w in place of their signs.

# %%
figure, axes = plt.subplots(2, len(data), sharex="col", squeeze=False, layout="constrained")
figure.set_size_inches(5 * len(data), 7)
for (where, name), curves in found.items():
    top, bottom = axes[:, list(data).index(where)]
    color, epochs = f"C{list(METHODS).index(name)}", np.arange(1, EPOCHS[where] + 1)
    for axis, k, style in ((top, 0, "-"), (top, 1, ":"), (bottom, 2, "-")):
        seeds = curves[:, :, k]
        axis.plot(epochs, seeds.mean(axis=0), style, color=color, label="" if k == 1 else name)
        axis.fill_between(epochs, seeds.min(axis=0), seeds.max(axis=0), alpha=0.2, color=color)
    top.set(title=where, yscale="log", ylabel="test loss (dotted: of w itself)")
    bottom.set(xlabel="epoch", ylabel="test accuracy, %")
axes[1, 0].legend()
plt.show()
run.picture(figure)


# %% [markdown]
# Softsign and arctan predict better with signs on MNIST, and sooner; the sigmoid does not. With w
# itself all are alike: what differs is the side of 0 on which a weight is. At the large step every
# map learns more than mirroring, whose two forms lie together. Fashion-MNIST had 6 of 300 epochs
# and no search of its own, so its verdicts stay open.


# %%
def compared(says, of_map, of_mirror, sign=1, form=".1f", unit="", fair=True):
    """Whether a map is better than mirroring by two standard errors, where the test is fair."""
    (a, da), (b, db) = over_seeds(of_map), over_seeds(of_mirror)
    seen = f"{a:{form}} ± {da:{form}}, mirroring {b:{form}} ± {db:{form}}{unit}"
    holds = beyond(sign * (a - b), np.hypot(da, db)) if fair else None
    run.verdict(says, seen, holds, seeds=len(SEEDS))


MEASURES = {"loss of signs": (0, -1, ".3f"), "loss of w": (1, -1, ".3f"), "accuracy": (2, 1, ".1f")}
for where, name in ((where, name) for where in data for name in MAPS):
    curves, mirror, fair = found[where, name], found[where, "mirror"], where == "MNIST"
    for what, (k, sign, form) in MEASURES.items():
        says = f"CoRV achieves better prediction than mirroring ({name}, {where}, test {what})"
        compared(says, curves[:, -1, k], mirror[:, -1, k], sign, form, " %" * (k == 2), fair)
    says = f"mirroring showed a slower learning curve ({name}, {where})"
    means = [x[:, :, 2].mean(axis=1) for x in (curves, mirror)]
    compared(says, *means, unit=f" % right, mean of {EPOCHS[where]} epochs", fair=fair)
for name in MAPS:
    says = f"transformation enables stable computation with a large step size ({name}, MNIST)"
    step = 10 * best["mirror"]
    unit = f" % right after {SHORT} epochs with a step of {step:.0e} in w"
    compared(says, large[name][:, -1, 2], large["mirror"][:, -1, 2], unit=unit)

# %% [markdown]
# ## In single precision
#
# A weight that is rounded to the bound (6e-8 from the next number) has an infinite gradient of the
# prior. Every later update is rejected, and the chain ends: at its best step no chain of mirroring
# does in 12 epochs, at ten times that step each does. The maps of CoRV never reach a bound.

# %%
with pytensor.config.change_flags(floatX="float32"):
    ms.clear()
    sample, h = sampler("mirror", data["MNIST"]), best["mirror"]
    last = [sample(step, EPOCHS["MNIST"])[:, -1, 0] for step in (h, 10 * h)]
    own, at_large = (int(np.sum(loss == ENDED[0])) for loss in last)
    says = "mirroring learns, slowly (in single precision; the paper does not give its own)"
    seen = f"of {len(SEEDS)} chains of {EPOCHS['MNIST']} epochs end early: {own} with its best step"
    seen += f" of {h:.0e}, {at_large} with {10 * h:.0e}"
    run.verdict(says, seen, {0: True, len(SEEDS): False}.get(own), seeds=len(SEEDS))
    single = sampler("softsign", data["MNIST"])(best["softsign"], EPOCHS["MNIST"])
    says = "CoRV works in single precision (softsign, MNIST, accuracy; mirroring in double)"
    compared(says, single[:, -1, 2], found["MNIST", "mirror"][:, -1, 2], unit=" %")
    print(f"in single precision: {ms['mirror']:.2f} and {ms['softsign']:.2f} ms/update")

# %% [markdown]
# ## With nothing set
#
# What a user gets who has not read the paper: the same model and data, no argument but a seed.

# %%
for method in () if SMALL else (sg.CoRVSGLD, sg.MSGNHT, sg.SMLD):
    with run.untuned(f"sg.{method.__name__}()") as gives:
        with model(*data["MNIST"][0]):
            dt = pm.sample(step=method(), draws=100, random_seed=1, **ONE)
        loss, of_w, accuracy = learning_curves(dt.posterior, *data["MNIST"][2])[-1]
        gives(f"{accuracy:.1f} % right, loss {loss:.2f} of signs and {of_w:.2f} of w", None)

run.end()
