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
from registry import Builder, Registry, Writer

FOLDER = Path(__file__).parents[2] / "data" / "posteriordb"
POSTERIORDB = Registry()
# Of each model, its name in posteriordb, and which variables of PyMC have Stan's as their rows
ORIGIN: dict[str, str] = {}
ROWS: dict[str, dict[str, tuple[str, ...]]] = {}
SUITE = Registry()
SUITE_ORIGIN: dict[str, str] = {}


type Decorator = Callable[[Writer], Builder]


def _into(registry: Registry, origin: dict[str, str]) -> Callable[..., Decorator]:
    """Return what registers a model there, of the posterior of a name and with its rows."""

    def posterior_of(name: str, **rows: tuple[str, ...]) -> Decorator:
        def register(write: Writer) -> Builder:
            origin[write.__name__] = name
            ROWS[write.__name__] = rows
            return registry.add(write)

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


def linear(name: str, y: np.ndarray, x: np.ndarray, scale: float | None = None) -> None:
    """Regress ``y`` on columns; the noise is flat, or half-Cauchy of this scale."""
    beta = pm.Flat("beta", shape=x.shape[1])
    sigma = pm.HalfFlat("sigma") if scale is None else pm.HalfCauchy("sigma", scale)
    pm.Normal(name, x @ beta, sigma, observed=y)


def five_slopes(name: str) -> None:
    """Regress a posterior's ``y`` on five columns, with normal priors."""
    d = data(name)
    beta = pm.Normal("beta", 0, 10, shape=5)
    sigma = pm.HalfNormal("sigma", 10)
    pm.Normal("y", d["X"] @ beta, sigma, observed=d["y"])


@posterior("kidiq_with_mom_work-kidscore_interaction_z")
def kidscore_interaction_z() -> None:
    """Test scores of children on their mothers' schooling and IQ, with interaction."""
    d = data("kidiq_with_mom_work-kidscore_interaction_z")
    hs, iq = standardised(d["mom_hs"]), standardised(d["mom_iq"])
    x = np.column_stack([np.ones_like(hs), hs, iq, hs * iq])
    linear("kid_score", d["kid_score"], x)


@posterior("nes2000-nes")
def nes2000() -> None:
    """Party identification in the election study of 2000, a linear regression."""
    d = data("nes2000-nes")
    age = d["age_discrete"][:, None] == [2, 3, 4]
    before, after = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    x = np.column_stack(
        [np.ones(len(age)), *(d[key] for key in before), age, *(d[key] for key in after)]
    )
    linear("partyid7", d["partyid7"], x)


@posterior("sblri-blr")
def sblri() -> None:
    """Linear regression with nearly uncorrelated coefficients."""
    five_slopes("sblri-blr")


@posterior("arK-arK")
def arK() -> None:
    """Autoregression of order five, given the first five values."""
    d = data("arK-arK")
    y, order = d["y"], int(d["K"])
    lags = np.column_stack([y[order - k : -k] for k in range(1, order + 1)])
    alpha = pm.Normal("alpha", 0, 10)
    beta = pm.Normal("beta", 0, 10, shape=order)
    sigma = pm.HalfCauchy("sigma", 2.5)
    pm.Normal("y", alpha + lags @ beta, sigma, observed=y[order:])


@posterior("low_dim_gauss_mix-low_dim_gauss_mix")
def low_dim_gauss_mix() -> None:
    """Mixture of two normals, well separated."""
    y = data("low_dim_gauss_mix-low_dim_gauss_mix")["y"]
    theta = pm.Beta("theta", 5, 5)
    mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=[-1, 1])
    sigma = pm.HalfNormal("sigma", 2, shape=2)
    pm.NormalMixture("y", pt.stack([theta, 1 - theta]), mu, sigma, observed=y)


@posterior("eight_schools-eight_schools_noncentered")
def eight_schools_noncentered() -> None:
    """Coaching in eight schools, non-centred; the reference knows no ``theta_trans``."""
    d = data("eight_schools-eight_schools_noncentered")
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    theta_trans = pm.Normal("theta_trans", 0, 1, shape=8)
    theta = pm.Deterministic("theta", mu + tau * theta_trans)
    pm.Normal("y", theta, d["sigma"], observed=d["y"])


@posterior("kilpisjarvi_mod-kilpisjarvi")
def kilpisjarvi() -> None:
    """Summer temperatures on the year, not centred: the line's two parameters nearly coincide."""
    d = data("kilpisjarvi_mod-kilpisjarvi")
    alpha = pm.Normal("alpha", d["pmualpha"], d["psalpha"])
    beta = pm.Normal("beta", d["pmubeta"], d["psbeta"])
    sigma = pm.HalfFlat("sigma")
    pm.Normal("y", alpha + beta * d["x"], sigma, observed=d["y"])


@posterior("mesquite-logmesquite_logvas")
def logmesquite_logvas() -> None:
    """Leaf mass of mesquite bushes on their volume, area and shape, all in logarithms."""
    d = data("mesquite-logmesquite_logvas")
    area = d["diam1"] * d["diam2"]
    sizes = area * d["canopy_height"], area, d["diam1"] / d["diam2"], d["total_height"]
    x = np.column_stack(
        [np.ones(len(area)), *np.log([*sizes, d["density"]]), d["group"].astype(float)]
    )
    linear("log_weight", np.log(d["weight"]), x)


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
def hmm_example() -> None:
    """Hidden Markov chain of two states with normal observations."""
    y = data("hmm_example-hmm_example")["y"]
    theta = pm.Dirichlet("theta", np.ones((2, 2)))
    # Stan's means are positive too; that these are not is 13 standard deviations away
    mu = pm.Normal("mu", [3, 10], 1, transform=ordered)
    pm.Potential("y", hmm_logp(pt.constant(y), theta, mu))
