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
# # A recommender that knows whom it does not know yet
#
# Which film will this person like? A matrix factorisation gives each person and each
# film a few numbers, and predicts a rating from their products. It has tens of
# thousands of parameters. A point estimate of them is as sure of a person with three
# ratings as of a person with three hundred. The posterior is not. NUTS needs all
# ratings for each of its many steps. `MSGNHT` uses a batch of them.
#
# The page shows how to predict for other pairs, and how to rank with uncertainty. It is
# for users of PyMC with many users, items or other indices. It takes three minutes.

# %%
import sys
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_sgmcmc as sg

sys.path.append("reproductions")
from datasets import ratings

# %% [markdown]
# ## Data
#
# The data are ratings from 1 to 5 from MovieLens 100K, with 943 people and 1,682 films.
# `make datasets` downloads them, because their licence forbids redistribution. If they
# are missing, the page uses data that a random factorisation made. We keep a tenth of
# the ratings for tests. We also turn every tenth person into a newcomer: all but at
# most five of their ratings are kept for tests, too.

# %%
user, item, rating, _ = ratings()
rng = np.random.default_rng(0)
order = rng.permutation(len(rating))
user, item, rating = (
    x[order] for x in (user.astype("int32"), item.astype("int32"), rating)
)
USERS, ITEMS = int(user.max()) + 1, int(item.max()) + 1

of_user = pd.Series(user).groupby(user).cumcount().to_numpy()
newcomer = np.arange(USERS) % 10 == 0
test = (rng.random(len(rating)) < 0.1) | (newcomer[user] & (of_user >= user // 10 % 6))
train = ~test
known = np.bincount(user[train], minlength=USERS)
print(f"{train.sum():,} ratings to learn from, {test.sum():,} to be tested on")

# %% [markdown]
# ## Model
#
# A rating is the sum of a mean, an effect of the person, an effect of the film, and the
# products of five tastes of the person with five traits of the film. The model learns
# how much people and films differ. Indices pick what a row needs, so nothing is ever as
# large as people times films.
#
# This is an ordinary model of all ratings. The person and the film of each row are
# `pm.Data`, so that we can replace them by other pairs afterwards.

# %%
coords = {
    "rating_row": np.arange(train.sum()),
    "user": np.arange(USERS),
    "film": np.arange(ITEMS),
    "trait": np.arange(5),
}
with pm.Model(coords=coords) as model:
    u = pm.Data("u", user[train], dims="rating_row")
    i = pm.Data("i", item[train], dims="rating_row")
    level = pm.Normal("level", 3.5, 1)
    generous = pm.Normal("generous", 0, pm.HalfNormal("sd_generous", 1), dims="user")
    popular = pm.Normal("popular", 0, pm.HalfNormal("sd_popular", 1), dims="film")
    sd = pm.HalfNormal("sd_trait", 1)
    taste = pm.Normal("taste", 0, sd, dims=("user", "trait"))
    trait = pm.Normal("trait_of_film", 0, sd, dims=("film", "trait"))
    mean = level + generous[u] + popular[i] + (taste[u] * trait[i]).sum(axis=1)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("rating", mean, sigma, observed=rating[train], dims="rating_row")

# %% [markdown]
# ## Sampling
#
# The step method uses batches of 500 rows. Nothing is tuned by hand. Two hundred draws
# from each of two chains are enough for means and intervals of predictions. More would
# need much memory, because each draw is as large as the model.

# %%
start = time.perf_counter()
with model:
    dt = pm.sample(
        draws=200,
        tune=200,
        chains=2,
        cores=1,
        step=sg.MSGNHT(batch_dim="rating_row", batch_size=500),
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
    )
print(f"{time.perf_counter() - start:.0f} s")

# %% [markdown]
# The warning that variables mix slowly is to be expected. Rotate the five traits of all
# films, and the five tastes of all people with them, and every prediction is the same:
# a single taste has no meaning of its own, and neither has its R-hat. The warning names
# the level and scales, too, which no rotation explains: these mix slowly, so trust
# their means only roughly, and their sds not at all. Judge the model by its
# predictions.

# %%
scales = ["level", "sd_generous", "sd_popular", "sd_trait", "sigma"]
of_chain = dt.posterior.to_dataset()[scales].to_dataframe().groupby("chain")
pd.concat({"mean": of_chain.mean(), "sd": of_chain.std()}).unstack(0).T.round(3)

# %% [markdown]
# ## Predictions for new pairs
#
# We predict in PyMC's usual way: `pm.set_data` replaces the pairs, and
# `pm.sample_posterior_predictive` draws their ratings. We name the expected rating of
# each pair only now. During sampling every draw would have computed it for all rows.

# %%
with model:
    pm.Deterministic("mean", mean, dims="rating_row")


def predicted(u, i, names=("mean", "rating")):
    """Draws of expected and actual ratings for pairs, dimensions sample and pair."""
    with model:
        pm.set_data(
            {"u": np.asarray(u, "int32"), "i": np.asarray(i, "int32")},
            coords={"rating_row": np.arange(len(u))},
        )
        found = pm.sample_posterior_predictive(
            dt,
            var_names=list(names),
            predictions=True,
            random_seed=2,
            progressbar=False,
        )
    stacked = found.predictions.to_dataset().stack(sample=("chain", "draw"))
    return [stacked[name].transpose("sample", ...).values for name in names]


expected, made = predicted(user[test], item[test])
error = np.clip(expected.mean(axis=0), 1, 5) - rating[test]
guess = rating[train].mean() - rating[test]
print(f"RMSE {np.sqrt(np.mean(error**2)):.3f}; ", end="")
print(f"of the mean of all ratings {np.std(guess):.3f}")

# %% [markdown]
# ## Are the intervals right?
#
# An interval of 80 % should hold 80 % of the ratings kept for tests, for old customers
# and for newcomers. Real ratings are whole numbers, and the model's ratings are not. So
# we replace each real rating by a random number that would be rounded to it, and look
# at its place among the model's ratings.

# %%
whole = rating[test]
below, upto = (made < whole - 0.5).mean(axis=0), (made < whole + 0.5).mean(axis=0)
below, upto = np.where(whole == 1, 0, below), np.where(whole == 5, 1, upto)
place = rng.uniform(below, upto)

levels = np.linspace(0.05, 0.95, 19)
new = newcomer[user[test]]
figure, axis = plt.subplots(figsize=(5, 4.5), layout="constrained")
axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
for name, those in (("old customers", ~new), ("newcomers", new)):
    inside = np.abs(place[those] - 0.5) < levels[:, None] / 2
    axis.plot(levels, inside.mean(axis=1), marker="o", markersize=4, label=name)
axis.set(xlabel="probability of the interval", ylabel="share of ratings inside")
_ = axis.legend()

# %% [markdown]
# ## Newcomers
#
# The fewer ratings a person has given, the less we know about what they will like. Each
# point is a person. The vertical axis is the sd of their *expected* rating, averaged
# over the films kept for tests.

# %%
width = pd.Series(expected.std(axis=0)).groupby(user[test]).mean()
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.scatter(known[width.index] + 0.5, width, s=12, alpha=0.6)
axis.set_xscale("log")
axis.set(
    xlabel="ratings known of a person (and a half)", ylabel="sd of expected ratings"
)
of = known[width.index]
few, many = (int(width.index[pick(of)]) for pick in (np.argmin, np.argmax))
print(f"at most 5 ratings known: median sd {width[of <= 5].median():.2f}")
print(f"at least 100: median sd {width[of >= 100].median():.2f}")

# %% [markdown]
# ## What to recommend
#
# Suppose that we want to show ten films. A list by expected rating hides the
# uncertainty: the first and the fortieth film may be nearly equal. But each draw of the
# posterior ranks all films, so we can count how often a film is among the ten best. For
# a person with many ratings, a few films are likely to be among them. For a
# newcomer the probability is spread over many films, and a good list would include some
# films in order to learn more.


# %%
def top(person, count=10):
    """Films that this person has not rated, with their chance to be among the best."""
    unseen = np.setdiff1d(np.arange(ITEMS), item[train & (user == person)])
    [of_film] = predicted(np.full(len(unseen), person), unseen, names=["mean"])
    best = np.argsort(-of_film, axis=1)[:, :count]
    chance = np.bincount(best.reshape(-1), minlength=len(unseen)) / len(of_film)
    table = pd.DataFrame(
        {
            "expected": of_film.mean(axis=0),
            "sd": of_film.std(axis=0),
            "in top 10": chance,
        },
        index=pd.Index(unseen, name="film"),
    )
    return table.sort_values("in top 10", ascending=False)


lists = {f"{known[person]} ratings known": top(person) for person in (many, few)}
pd.concat(
    {name: table.head(10).reset_index() for name, table in lists.items()}, axis=1
).round(2)

# %%
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, table in lists.items():
    axis.plot(
        range(1, 51), table["in top 10"].iloc[:50], marker="o", markersize=3, label=name
    )
axis.set(
    xlabel="films, by probability", ylabel="probability of the top 10", ylim=(0, None)
)
legend = axis.legend()
