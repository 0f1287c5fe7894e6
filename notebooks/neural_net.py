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
# # A neural net that knows what it does not know
#
# Which digit is on a bad copy? A Bayesian net averages over all weights that fit the
# data. Its predictions are better than those of one set of weights, and it is less
# sure of images of another kind. NUTS needs the gradient of all images for each of its
# steps. `MSGNHT` uses a hundred images.
#
# The page shows predictions for new data, calibration, and what the net says about
# images of another kind. It is for users of PyMC who know what a neural net is. It
# takes ten minutes.

# %%
import sys
import time

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_sgmcmc as sg

sys.path.append("reproductions")
from datasets import digits, no_digits

# %% [markdown]
# ## Data
#
# The data are images of handwritten digits. Each image is a row of grey values between
# 0 and 1. We add noise, so that there is something to be unsure of. These are 5,000
# images of MNIST, of 28 by 28 pixels, which `make datasets` downloads. If they are
# missing, the page uses scikit-learn's digits, of 8 by 8 pixels. Half of the images are
# for training.

# %%
images, labels, _ = digits()
# PyMC wants labels of a batch in 32 bits
labels = labels.astype("int32")
side = round(images.shape[1] ** 0.5)
strange, what = no_digits(side)

rng = np.random.default_rng(0)
order = rng.permutation(len(labels))
train, test = np.split(order, [len(labels) // 2])


def copied(images):
    """Images after a bad copying machine."""
    return images + 0.4 * rng.standard_normal(images.shape)


images = copied(images)
print(f"{len(train)} images to learn from, {len(test)} to be tested on,")
print(f"of {side} by {side} pixels")

figure, axes = plt.subplots(1, 10, figsize=(10, 1.3))
for axis, i in zip(axes, test, strict=False):
    axis.imshow(images[i].reshape(side, side), cmap="gray_r")
    axis.set_title(labels[i], fontsize=10)
    axis.set_axis_off()

# %% [markdown]
# ## Model
#
# The net is a function of the images, because we need it twice: for batches during
# training, and for any number of images to predict. The prior sd of a layer's weights
# is inversely proportional to the root of the number of its inputs. So the sum in a
# unit has the same scale whatever that number is.

# %%
HIDDEN = 50


def net(image):
    """The logarithm of the odds of each digit, up to a constant."""
    W = pm.Normal("W", 0, 2 / side, dims=("pixel", "unit"))
    b = pm.Normal("b", 0, 1, dims="unit")
    V = pm.Normal("V", 0, 10 / HIDDEN**0.5, dims=("unit", "class"))
    c = pm.Normal("c", 0, 1, dims="class")
    return pm.math.tanh(image @ W + b) @ V + c


coords = {"pixel": range(images.shape[1]), "unit": range(HIDDEN), "class": range(10)}
with pm.Model(coords=coords) as model:
    image, label = pm.Minibatch(images[train], labels[train], batch_size=100)
    pm.Categorical("digit", logit_p=net(image), observed=label, total_size=len(train))

# %% [markdown]
# ## Sampling
#
# Nothing is tuned by hand. A hundred draws from each of two chains are plenty. We want
# an average of predictions, not the tails of a weight, and every draw is as large as
# the net.

# %%
start = time.perf_counter()
with model:
    dt = pm.sample(
        draws=100,
        tune=50,
        chains=2,
        cores=1,
        step=sg.MSGNHT(),
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
    )
seconds = time.perf_counter() - start
print(f"{seconds:.0f} s, {int(dt.sample_stats['thin'].max())} updates for each draw")

# %% [markdown]
# The warning is to be expected. If two hidden units are exchanged, with all their
# weights, the net is the same function. So the posterior has at least 50! modes, and
# the chains are in different ones. R-hat of a single weight stays large and says
# nothing, so we did not compute it. The chains agree on the *function*, as we check
# below.
#
# ## Predictions for new data
#
# The model above contains only batches of the training set. For predictions we put the
# same net into a model whose images are a `pm.Data`. `pm.set_data` replaces the images,
# and `pm.sample_posterior_predictive` runs the net with each draw of the weights, as in
# every PyMC model.

# %%
with pm.Model(coords=coords) as predictive:
    data = pm.Data("image", images[train])
    logit = net(data)
    pm.Deterministic("probability", pm.math.softmax(logit, axis=-1))
    pm.Categorical("digit", logit_p=logit)


def predict(draws, new):
    """The probability of each digit by each draw: chains, draws, images, digits."""
    with predictive:
        pm.set_data({"image": new})
        found = pm.sample_posterior_predictive(
            draws, var_names=["probability"], predictions=True, progressbar=False
        )
    return found.predictions["probability"].values


# Digits, digits turned by a quarter, and something else
turned = np.rot90(images[test].reshape(-1, side, side), axes=(1, 2)).reshape(
    len(test), -1
)
shown = {
    "digits": images[test],
    "turned digits": turned,
    what: copied(strange[: len(test)]),
}
kinds = np.cumsum([len(new) for new in shown.values()])[:-1]
new = np.concatenate(list(shown.values()))

of_draws = predict(dt.isel(draw=slice(None, None, 2)), new)
by_kind = np.split(of_draws.mean(axis=(0, 1)), kinds)
probability = by_kind[0]

# %% [markdown]
# Do the chains agree on their predictions? The table has the correlation between chains
# of the probability of the right digit, over the test images.

# %%
right = of_draws.mean(axis=1)[:, np.arange(len(test)), labels[test]]
pd.DataFrame(np.corrcoef(right)).round(3)

# %% [markdown]
# ## A point estimate
#
# For comparison we take the weights that maximise the posterior density, found by
# `pm.find_MAP`. Training with weight decay finds the same kind of weights.

# %%
with pm.Model(coords=coords) as whole:
    pm.Categorical("digit", logit_p=net(images[train]), observed=labels[train])
    # All weights at 0, PyMC's start, are a saddle
    begin = {
        name: 0.3 * rng.normal(size=x.shape)
        for name, x in whole.initial_point().items()
    }
    best = pm.find_MAP(
        initvals=begin, jitter=False, return_inferencedata=False, progressbar=False
    )
names = ["W", "b", "V", "c"]
point = xr.Dataset(
    {
        name: dt.posterior[name][:1, :1].copy(data=best[name][None, None])
        for name in names
    }
)
point_by_kind = np.split(predict(point, new)[0, 0], kinds)
of_point = point_by_kind[0]


# %%
def judged(p, answers):
    """Accuracy, negative log likelihood and expected calibration error."""
    sure, hit = p.max(axis=1), p.argmax(axis=1) == answers
    bins = np.minimum((sure * 10).astype(int), 9)
    gaps = [abs(sure[bins == k].sum() - hit[bins == k].sum()) for k in range(10)]
    return {
        "accuracy": hit.mean(),
        "negative log likelihood": -np.log(p[np.arange(len(p)), answers]).mean(),
        "calibration error": sum(gaps) / len(p),
    }


one = of_draws[0, -1, : len(test)]
nets = {"Bayesian net": probability, "one draw": one, "point estimate": of_point}
table = pd.DataFrame({name: judged(p, labels[test]) for name, p in nets.items()}).T
table.round(4)

# %% [markdown]
# ## Calibration
#
# If a net says «80 %», is it right for 80 % of these images? The figure has the share
# of right answers for each bin of probabilities. A net below the diagonal is too sure,
# and a net above it is not sure enough. A bar is two standard errors.

# %%
figure, axis = plt.subplots(figsize=(5, 4.5), layout="constrained")
axis.plot([0, 1], [0, 1], color="0.6", linewidth=1)
edges = np.array([0.0, 0.4, 0.6, 0.8, 0.9, 0.96, 1.0])
for shift, (name, color) in enumerate(
    {"Bayesian net": "#0072b2", "point estimate": "#e69f00"}.items()
):
    p = nets[name]
    sure, hit = p.max(axis=1), p.argmax(axis=1) == labels[test]
    in_bin = [(sure > low) & (sure <= high) for low, high in pairwise(edges)]
    in_bin = [which for which in in_bin if which.sum() >= 10]
    x = np.array([sure[which].mean() for which in in_bin])
    y = np.array([hit[which].mean() for which in in_bin])
    error = [
        2 * np.sqrt(max(m * (1 - m), 0.01) / w.sum())
        for m, w in zip(y, in_bin, strict=True)
    ]
    axis.errorbar(
        x + 0.004 * shift, y, error, marker="o", capsize=3, color=color, label=name
    )
axis.set(xlabel="what the net says", ylabel="how often it is right", xlim=(0.2, 1.02))
legend = axis.legend()

# %% [markdown]
# The point estimate is better calibrated here. The Bayesian net is not sure enough: the
# draws disagree on copies that can be read in several ways, so their mean is cautious.
# Its accuracy and its log likelihood are better. One draw alone is worse than either:
# the average makes the good predictions.

# %% [markdown]
# ## Images of another kind
#
# A net has to answer with one of ten digits, even for digits turned by a quarter or for
# something that is no digit at all. The entropy of its probabilities, between 0 and log
# 10 = 2.3, says how little it knows. A good net should be sure of digits and not sure
# of the rest.


# %%
def entropy(p):
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1)


figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
rows = {}
bins = np.linspace(0, np.log(10), 24)
answers = {"Bayesian net": by_kind, "point estimate": point_by_kind}
for axis, (name, found) in zip(axes, answers.items(), strict=True):
    axis.set(title=name, xlabel="entropy of the probabilities")
    for kind, p in zip(shown, found, strict=True):
        axis.hist(
            entropy(p), bins, density=True, histtype="step", linewidth=2, label=kind
        )
        rows[name, kind] = {
            "mean entropy": entropy(p).mean(),
            "surer than 95 %": np.mean(p.max(axis=1) > 0.95),
        }
legend = axes[1].legend()

# %%
of_kinds = pd.DataFrame(rows).T
of_kinds.round(3)
