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
# # A wide net on a GPU
#
# This page samples a Bayesian neural net with 1,000 hidden units on a graphics card.
# Nothing in the model or the call says so: if JAX finds a GPU, the package samples on
# it. The page is for users of nets, factorisations and other models whose updates are
# much work. The outputs below are those of the device that the first cell prints. If it
# is a processor, as here, the page runs a smaller net. That takes a minute.
#
# Install JAX for the GPU with `pip install "jax[cuda13]"`.

# %%
import os
import time

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytensor

from scipy.ndimage import zoom
from sklearn.datasets import load_digits

import pymc_sgmcmc as sg

# What most GPUs are made for
pytensor.config.floatX = "float32"

device = jax.devices()[0]
LARGE = device.platform == "gpu" and not os.environ.get("SMALL")
IMAGES, HIDDEN, BATCH, DRAWS = (
    (60_000, 1_000, 500, 100) if LARGE else (2_000, 20, 100, 30)
)
print(device.device_kind, "· JAX", jax.__version__)

# %% [markdown]
# ## Data
#
# The data are the handwritten digits of scikit-learn, three times as large, at random
# places of an image of 28 by 28 pixels, with noise. No digit is used for both training
# and test images.

# %%
rng = np.random.default_rng(1)
digits = load_digits()
large = zoom(digits.images / 16, (1, 3, 3), order=1)
order = rng.permutation(len(large))


def made(which, count):
    """Return so many noisy images, one a row, and their digits."""
    which = rng.choice(which, count)
    images = 0.2 * rng.standard_normal((count, 28, 28), dtype="float32")
    for image, i, place in zip(
        images, which, rng.integers(0, 5, (count, 2)), strict=True
    ):
        image[place[0] : place[0] + 24, place[1] : place[1] + 24] += large[i]
    return images.reshape(count, -1), digits.target[which]


X, y = made(order[:1400], IMAGES)
X_test, y_test = made(order[1400:], 2_000)

figure, axes = plt.subplots(1, 10, figsize=(10, 1.3))
for axis, image, digit in zip(axes, X, y, strict=False):
    axis.imshow(image.reshape(28, 28), cmap="gray_r")
    axis.set_title(digit, fontsize=10)
    axis.set_axis_off()

# %% [markdown]
# ## Model and sampling
#
# `cores=1` samples one chain after the other. With more cores the chains share the GPU.
# The callback only records the time.

# %%
clock = []
with pm.Model() as model:
    # In single precision PyMC wants labels of 16 bits
    image, digit = pm.Minibatch(X, y.astype("int16"), batch_size=BATCH)
    W = pm.Normal("W", 0, 0.1, shape=(784, HIDDEN))
    V = pm.Normal("V", 0, 3 / HIDDEN**0.5, shape=(HIDDEN, 10))
    logits = pm.math.tanh(image @ W) @ V
    pm.Categorical("digit", logit_p=logits, observed=digit, total_size=len(y))
    start = time.perf_counter()
    dt = pm.sample(
        draws=DRAWS,
        tune=DRAWS // 2,
        chains=2,
        cores=1,
        step=sg.MSGNHT(),
        random_seed=1,
        callback=lambda **_: clock.append(time.perf_counter()),
        progressbar=False,
        compute_convergence_checks=False,
    )

# %% [markdown]
# ## What it took
#
# Compilation and tuning come before the first draw of a chain. An update computes the
# gradient of one batch of images. A draw takes `thin` updates.

# %%
first, second = np.split(np.array(clock), 2)
thin = int(dt.sample_stats["thin"].max())
an_update = (second[-1] - second[0]) / (len(second) - 1) / thin
facts = {
    "device": device.device_kind,
    "weights": f"{784 * HIDDEN + HIDDEN * 10:,}",
    "updates for each draw": thin,
    "µs an update": f"{an_update * 1e6:.0f}",
    "s to the first draw": f"{first[0] - start:.0f}, {second[0] - first[-1]:.0f}",
    "s in all": f"{second[-1] - start:.0f}",
}
pd.Series(facts, name="").to_frame()

# %% [markdown]
# [On a GPU](../gpu) has such figures for other models, and for processors.
#
# ## Predictions
#
# We predict with the mean of the probabilities over the draws, and compare it with
# single draws. The weights of a net have many equivalent modes, so the chains need not
# agree on the weights. They agree on the predictions.


# %%
def probabilities(W, V):
    """Return the probability of each digit, of shape (images, 10)."""
    found = np.tanh(X_test @ W) @ V
    found = np.exp(found - found.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


def judged(p):
    """Return accuracy and the mean log probability of the right digit."""
    right = np.log(np.maximum(p[np.arange(len(p)), y_test], 1e-300)).mean()
    return {"accuracy": np.mean(p.argmax(axis=1) == y_test), "log score": right}


some = dt.posterior.isel(draw=slice(None, None, 5))
of_draws = np.array(
    [
        [probabilities(*pair) for pair in zip(*chain, strict=True)]
        for chain in zip(some["W"].values, some["V"].values, strict=True)
    ]
)
of_chains, mean = of_draws.mean(axis=1), of_draws.mean(axis=(0, 1))
rows = {
    "last draw": of_draws[0, -1],
    "first chain": of_chains[0],
    "second chain": of_chains[1],
    "both chains": mean,
}
table = pd.DataFrame({name: judged(p) for name, p in rows.items()}).T
table.round(3)

# %% [markdown]
# The net knows where it may be wrong: the higher the probability of its answer is, the
# more often the answer is right.

# %% tags=["thumbnail"]
sure, hit = mean.max(axis=1), mean.argmax(axis=1) == y_test
parts = np.array_split(np.argsort(sure), 10)
figure, axis = plt.subplots(figsize=(4.5, 4), layout="constrained")
axis.set(xlabel="what the net says", ylabel="how often it is right")
axis.plot([0, 1], [0, 1], color="0.7")
points = axis.plot([sure[i].mean() for i in parts], [hit[i].mean() for i in parts], "o")

# %%
doubtful = np.argsort(sure)[:10]
figure, axes = plt.subplots(1, 10, figsize=(10, 1.6))
for axis, i in zip(axes, doubtful, strict=True):
    axis.imshow(X_test[i].reshape(28, 28), cmap="gray_r")
    axis.set_title(f"{y_test[i]}: {mean[i, y_test[i]]:.0%}", fontsize=10)
    axis.set_axis_off()
