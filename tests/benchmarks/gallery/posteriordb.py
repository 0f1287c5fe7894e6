"""Nine posteriors of posteriordb, written as a user of PyMC would write them.

``SUITE`` has the others, written in files of their own. Of the nine the reference is posteriordb's;
of the others posteriordb's means are a check of the reference, which is made here.

Parameters and priors are those of the Stan programs, so that the reference draws are of these
very posteriors; a prior is flat where Stan's program has none.
"""

from __future__ import annotations

import json

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc.distributions.transforms import ordered

from .registry import Builder, Registry

FOLDER = Path(__file__).parents[2] / "data" / "posteriordb"
POSTERIORDB = Registry()
# Of each model, its name in posteriordb, and which variables of PyMC have Stan's as their rows
ORIGIN: dict[str, str] = {}
ROWS: dict[str, dict[str, tuple[str, ...]]] = {}
SUITE = Registry()
SUITE_ORIGIN: dict[str, str] = {}


type Decorator = Callable[[Builder], Builder]


def _into(registry: Registry, origin: dict[str, str]) -> Callable[..., Decorator]:
    """Return what registers a model there, of the posterior of a name and with its rows."""

    def posterior_of(name: str, **rows: tuple[str, ...]) -> Decorator:
        def register(function: Builder) -> Builder:
            origin[function.__name__] = name
            ROWS[function.__name__] = rows
            return registry.add(function)

        return register

    return posterior_of


posterior, of_suite = _into(POSTERIORDB, ORIGIN), _into(SUITE, SUITE_ORIGIN)


@cache
def load(name: str, file: str) -> dict[str, Any]:
    """Read ``data``, ``info``, ``summary`` or ``means`` of a posterior."""
    return json.loads((FOLDER / name / f"{file}.json").read_text())


def data(name: str) -> dict[str, np.ndarray]:
    """Return a posterior's data."""
    return {key: np.array(value) for key, value in load(name, "data").items()}


def element(name: str, stan: str) -> tuple[str, tuple[int, ...]]:
    """Return which variable of a model, and where in it, is this element of Stan's program."""
    variable, _, inside = stan.rstrip("]").partition("[")
    index = tuple(int(i) - 1 for i in inside.split(",") if i)
    for name_of_rows, parts in ROWS[name].items():
        if variable in parts:
            return name_of_rows, (parts.index(variable), *index)
    return variable, index


def means(name: str) -> dict[tuple[str, tuple[int, ...]], dict[str, float]]:
    """Return posteriordb's ``mean``, ``mcse_mean`` and what else it has, of every element.

    An element is a variable's name and an index; the model is one of ``SUITE``.
    """
    table = load(SUITE_ORIGIN[name], "means")
    columns = [key for key in table if key != "names"]
    return {
        element(name, stan): {key: table[key][i] for key in columns}
        for i, stan in enumerate(table["names"])
    }


def standardised(x: np.ndarray) -> np.ndarray:
    """Return a column with mean 0 and standard deviation 1/2."""
    return (x - x.mean()) / (2 * x.std(ddof=1))


@posterior("kidiq_with_mom_work-kidscore_interaction_z")
def kidscore_interaction_z() -> pm.Model:
    """Test scores of children on their mothers' schooling and IQ, with interaction."""
    d = data("kidiq_with_mom_work-kidscore_interaction_z")
    hs, iq = standardised(d["mom_hs"]), standardised(d["mom_iq"])
    x = np.column_stack([np.ones_like(hs), hs, iq, hs * iq])
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=4)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("kid_score", x @ beta, sigma, observed=d["kid_score"])
    return model


@posterior("nes2000-nes")
def nes2000() -> pm.Model:
    """Party identification in the election study of 2000, a linear regression."""
    d = data("nes2000-nes")
    age = d["age_discrete"][:, None] == [2, 3, 4]
    before, after = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    x = np.column_stack(
        [np.ones(len(age)), *(d[key] for key in before), age, *(d[key] for key in after)]
    )
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=9)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("partyid7", x @ beta, sigma, observed=d["partyid7"])
    return model


@posterior("sblri-blr")
def sblri() -> pm.Model:
    """Linear regression with nearly uncorrelated coefficients."""
    d = data("sblri-blr")
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=5)
        sigma = pm.HalfNormal("sigma", 10)
        pm.Normal("y", d["X"] @ beta, sigma, observed=d["y"])
    return model


@posterior("arK-arK")
def arK() -> pm.Model:
    """Autoregression of order five, given the first five values."""
    d = data("arK-arK")
    y, order = d["y"], int(d["K"])
    lags = np.column_stack([y[order - k : -k] for k in range(1, order + 1)])
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0, 10)
        beta = pm.Normal("beta", 0, 10, shape=order)
        sigma = pm.HalfCauchy("sigma", 2.5)
        pm.Normal("y", alpha + lags @ beta, sigma, observed=y[order:])
    return model


@posterior("low_dim_gauss_mix-low_dim_gauss_mix")
def low_dim_gauss_mix() -> pm.Model:
    """Mixture of two normals, well separated."""
    y = data("low_dim_gauss_mix-low_dim_gauss_mix")["y"]
    with pm.Model() as model:
        theta = pm.Beta("theta", 5, 5)
        mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=[-1, 1])
        sigma = pm.HalfNormal("sigma", 2, shape=2)
        pm.NormalMixture("y", pt.stack([theta, 1 - theta]), mu, sigma, observed=y)
    return model


@posterior("eight_schools-eight_schools_noncentered")
def eight_schools_noncentered() -> pm.Model:
    """Coaching in eight schools, non-centred; the reference knows no ``theta_trans``."""
    d = data("eight_schools-eight_schools_noncentered")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta_trans = pm.Normal("theta_trans", 0, 1, shape=8)
        theta = pm.Deterministic("theta", mu + tau * theta_trans)
        pm.Normal("y", theta, d["sigma"], observed=d["y"])
    return model


@posterior("kilpisjarvi_mod-kilpisjarvi")
def kilpisjarvi() -> pm.Model:
    """Summer temperatures on the year, not centred: the line's two parameters nearly coincide."""
    d = data("kilpisjarvi_mod-kilpisjarvi")
    with pm.Model() as model:
        alpha = pm.Normal("alpha", d["pmualpha"], d["psalpha"])
        beta = pm.Normal("beta", d["pmubeta"], d["psbeta"])
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", alpha + beta * d["x"], sigma, observed=d["y"])
    return model


@posterior("mesquite-logmesquite_logvas")
def logmesquite_logvas() -> pm.Model:
    """Leaf mass of mesquite bushes on their volume, area and shape, all in logarithms."""
    d = data("mesquite-logmesquite_logvas")
    area = d["diam1"] * d["diam2"]
    sizes = area * d["canopy_height"], area, d["diam1"] / d["diam2"], d["total_height"]
    x = np.column_stack(
        [np.ones(len(area)), *np.log([*sizes, d["density"]]), d["group"].astype(float)]
    )
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=7)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("log_weight", x @ beta, sigma, observed=np.log(d["weight"]))
    return model


def hmm_logp(y: pt.TensorVariable, theta: pt.TensorVariable, mu: pt.TensorVariable) -> Any:
    """Log-density of a hidden Markov chain's observations: the forward algorithm."""
    emission = pm.logp(pm.Normal.dist(mu, 1), y[:, None])

    def forward(now: Any, before: Any, log_theta: Any) -> Any:
        return now + pt.logsumexp(before[:, None] + log_theta, axis=0)

    log_alpha = pytensor.scan(
        forward,
        sequences=emission[1:],
        outputs_info=emission[0],
        non_sequences=pt.log(theta),
        return_updates=False,
    )
    return pt.logsumexp(log_alpha[-1])


@posterior("hmm_example-hmm_example", theta=("theta1", "theta2"))
def hmm_example() -> pm.Model:
    """Hidden Markov chain of two states with normal observations."""
    y = data("hmm_example-hmm_example")["y"]
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones((2, 2)))
        # Stan's means are positive too; that these are not is 13 standard deviations away
        mu = pm.Normal("mu", [3, 10], 1, transform=ordered)
        pm.Potential("y", hmm_logp(pt.constant(y), theta, mu))
    return model
