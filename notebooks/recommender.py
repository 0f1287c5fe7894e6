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
# film a few numbers, and predicts a rating from their products. That is tens of
# thousands of parameters, and a point estimate of them is as sure of a person with
# three ratings as of one with three hundred. The posterior is not. NUTS looks at all
# ratings for each of its many steps; `MSGNHT` looks at a batch of them.
#
# For users of PyMC with many users, items or other indices. The page shows how to
# predict for other pairs, and how to rank with uncertainty. It takes three minutes.

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
# Ratings of 1 to 5. These are MovieLens 100K, 943 people and 1,682 films, which `make
# datasets` downloads. Its licence forbids to redistribute it. Where it is not, the page
# takes data that a random factorisation made. A tenth of the ratings is kept for tests.
# Every tenth person is made a newcomer: all but at most five of their ratings are kept
# for tests too.

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
# A rating is a mean, plus what the person gives to every film, plus what the film gets
# from everyone, plus a sum of products of five tastes of the person and five traits of
# the film. How much people and films differ is learned. Indices pick what a row needs:
# nothing is ever as large as people times films.
#
# The model is the ordinary one of all ratings. Which person and which film a row is
# about are `pm.Data`, so that other pairs can take their place afterwards.

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
# The step draws batches of 500 of the rows, and nothing is tuned by hand. Two hundred
# draws of each of two chains are enough for means and intervals of predictions, and
# spare memory: each draw is as large as the model.

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
# a single taste has no meaning of its own, and neither has its R-hat. Look at what can
# be compared instead, the scales and the predictions.

# %%
scales = ["level", "sd_generous", "sd_popular", "sd_trait", "sigma"]
of_chain = dt.posterior.to_dataset()[scales].to_dataframe().groupby("chain")
pd.concat({"mean": of_chain.mean(), "sd": of_chain.std()}).unstack(0).T.round(3)

# %% [markdown]
# ## Predictions for new pairs
#
# The ordinary PyMC way: `pm.set_data` exchanges the pairs, and
# `pm.sample_posterior_predictive` makes their ratings from the draws. The expected
# rating of each pair gets a name now: in every draw of the sampler it would have been
# computed for all rows.

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
# ## Can the intervals be taken at their word?
#
# Of the ratings kept back, an interval of 80 % should hold 80 %: of old customers and
# newcomers alike. Ratings are whole numbers, and the model's are not. So each gets the
# place among the made ones of a random number that would be rounded to it.

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
# The fewer ratings a person has given, the less is known of what they will like. Each
# point is a person: the sd of their *expected* rating, averaged over the films kept
# back for them.

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
# Ten films are to be shown. A list by expected rating hides what we know: the first and
# the fortieth film may be as good as equal. Each draw of the posterior ranks all films,
# so that we can count how often a film is among the ten best. For somebody well known
# few films are nearly sure to be; for a newcomer the probability is spread over many,
# and a good list would take some to learn from.


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
