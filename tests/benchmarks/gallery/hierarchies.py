"""Hierarchies as people write them: centred, with little data and with much."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from .exact import Moments
from .posteriordb import ORIGIN, data
from .registry import Registry

HIERARCHIES = Registry()
# The reference draws are those of the other writing
ORIGIN["eight_schools_centred"] = ORIGIN["eight_schools_noncentered"]
# Of a funnel without data only the log scale has moments that draws can tell
FUNNEL: Moments = {"v": (0.0, 3.0)}


@HIERARCHIES.add
def eight_schools_centred() -> pm.Model:
    """Coaching in eight schools, whose common scale may be near zero."""
    d = data(ORIGIN["eight_schools_centred"])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8)
        pm.Normal("y", theta, d["sigma"], observed=d["y"])
    return model


def funnel(dimension: int) -> pm.Model:
    """Return Neal's funnel."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        pm.Normal("x", 0, pt.exp(v / 2), shape=dimension)
    return model


@HIERARCHIES.add
def funnel_of_10() -> pm.Model:
    """Neal's funnel: a log scale and nine elements."""
    return funnel(9)


@HIERARCHIES.add
def funnel_of_100() -> pm.Model:
    """The same with 99 elements."""
    return funnel(99)


@HIERARCHIES.add
def funnel_in_a_funnel() -> pm.Model:
    """A log scale whose own scale is in a funnel."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        w = pm.Normal("w", 0, pt.exp(v / 4))
        pm.Normal("x", 0, pt.exp(w / 4), shape=5)
    return model


def rows_of_three_levels() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the region of each group, and of each row its group, predictor and response."""
    rng = np.random.default_rng(0)
    regions, groups, rows = 20, 10, 1000
    region = np.repeat(np.arange(regions), groups)
    of_region = 0.5 + 0.8 * rng.normal(size=regions)
    of_group = of_region[region] + 0.5 * rng.normal(size=regions * groups)
    group = np.repeat(np.arange(regions * groups), rows)
    x = rng.normal(size=len(group))
    chance = 1 / (1 + np.exp(-of_group[group] - 0.7 * x))
    return region, group, x, (rng.random(len(group)) < chance).astype("int32")


@HIERARCHIES.add
def three_levels(batch_size: int | None = 500) -> pm.Model:
    """Return 20 regions of 10 groups of 1,000 rows each, a logistic regression."""
    region, group, x, y = rows_of_three_levels()
    with pm.Model() as model:
        if batch_size is None:
            g, u, seen = group, x, y
        else:
            g, u, seen = pm.Minibatch(group, x, y, batch_size=batch_size)
        mu = pm.Normal("mu", 0, 2)
        between_regions = pm.HalfNormal("between_regions", 1)
        between_groups = pm.HalfNormal("between_groups", 1)
        slope = pm.Normal("slope", 0, 1)
        a = pm.Normal("region", mu, between_regions, shape=int(region.max()) + 1)
        b = pm.Normal("group", a[region], between_groups, shape=len(region))
        pm.Bernoulli("y", logit_p=b[g] + slope * u, observed=seen, total_size=len(y))
    return model


# Those whose moments have a formula
EXACT: dict[str, Moments] = {
    "funnel_of_10": FUNNEL,
    "funnel_of_100": FUNNEL,
    "funnel_in_a_funnel": FUNNEL,
}


@HIERARCHIES.add
def media_mix() -> pm.Model:
    """Sales of 60 regions in a year: carry-over and saturation of four media, effects by region.

    A gradient costs much beside the number of parameters, which all regions tie together.
    """
    rng = np.random.default_rng(44)
    regions, weeks, media, lags = 60, 52, 4, 8
    spent = rng.gamma(1, 1, (regions, weeks, media)) * (rng.random((regions, weeks, media)) < 0.6)
    padded = np.pad(spent, ((0, 0), (lags - 1, 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, lags, axis=1)[..., ::-1].copy()
    lag, year = np.arange(lags), 2 * np.pi * np.arange(weeks) / weeks
    carried = np.sum(windows * np.array([0.6, 0.4, 0.3, 0.5])[:, None] ** lag, axis=-1)
    of_region = np.array([0.6, 1.0, 0.8, 0.7]) + 0.15 * rng.normal(size=(regions, media))
    sold = np.sum(of_region[:, None] * np.tanh(np.array([0.6, 0.5, 0.8, 0.7]) * carried), axis=-1)
    sold += 2 + 0.5 * rng.normal(size=(regions, 1)) + 0.2 * np.sin(year)
    sold += 0.3 * rng.normal(size=sold.shape)
    with pm.Model() as model:
        kept = pm.Beta("kept", 2, 2, shape=media)
        saturation = pm.HalfNormal("saturation", 1, shape=media)
        mean = pm.Normal("mean", 0, 3)
        sd = pm.HalfNormal("sd", 1)
        base = pm.Normal("base", mean, sd, shape=regions)
        mean_effect = pm.Normal("mean_effect", 0, 1, shape=media)
        sd_effect = pm.HalfNormal("sd_effect", 0.5, shape=media)
        effect = pm.Normal("effect", mean_effect, sd_effect, shape=(regions, media))
        season = pm.Normal("season", 0, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        adstock = pt.sum(windows * kept[:, None] ** lag, axis=-1)
        of_media = pt.sum(effect[:, None] * pt.tanh(saturation * adstock), axis=-1)
        of_year = season[0] * np.sin(year) + season[1] * np.cos(year)
        pm.Normal("y", base[:, None] + of_media + of_year, sigma, observed=sold)
    return model
