"""The posteriors: each a PyMC model, the same in JAX, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import gallery
import numpy as np
import pymc as pm

from pymc_sgmcmc.model.minibatch import evaluate, find_minibatches

from . import exact, factorisation

BATCH = 500
SIZES = 10_000, 100_000, 1_000_000, 10_000_000
Position = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """One posterior.

    Attributes
    ----------
    name : str
    pymc : callable
        Builds the model from a batch size, or from None with the likelihood of all rows.
    priors : callable
        Distributions of NumPyro by the names of the variables, of a position.
    law : callable
        NumPyro's distribution of what was observed, of a position and of rows.
    known : callable
        Mean and sd of each variable, by name.
    batch : int
        Rows of a minibatch.
    proxy : bool
        Whether the Hessian of each row of a batch fits into memory, as HMCECS's proxy needs.
    """

    name: str
    pymc: Callable[[int | None], pm.Model]
    priors: Callable[[Position], dict[str, Any]]
    law: Callable[..., Any]
    known: Callable[[], dict[str, tuple[np.ndarray, np.ndarray]]]
    batch: int = BATCH
    proxy: bool = True

    @cached_property
    def model(self) -> pm.Model:
        """The model with minibatches."""
        return self.pymc(self.batch)

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """Rows of the data, what was observed last."""
        [minibatch] = find_minibatches(self.model.observed_RVs)
        return [evaluate(source) for source in minibatch.sources]

    @cached_property
    def moments(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Names of the variables, and means and sds of all their elements in one vector."""
        known = self.known()
        mean, sd = (np.concatenate([np.ravel(x[i]) for x in known.values()]) for i in (0, 1))
        return list(known), mean, sd

    def flat(self, point: Position) -> np.ndarray:
        """Return one draw, or a stack of draws, as a vector in the order of the moments."""
        return np.concatenate([np.ravel(point[name]) for name in self.moments[0]])

    def stacked(self, draws: Position) -> np.ndarray:
        """Return draws, the first axis, as rows in the order of the moments."""
        parts = [np.asarray(draws[name]) for name in self.moments[0]]
        return np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1)

    # ------------------------------------------------------------------ in JAX, on the real line

    def constrained(self, position: Position) -> Position:
        """Return the variables of a position whose positive ones are logarithms."""
        import jax.numpy as jnp

        positive = self.positive
        return {k: jnp.exp(x) if k in positive else x for k, x in position.items()}

    def log_prior(self, position: Position) -> Any:
        """Return the log density of a position under the prior."""
        values = self.constrained(position)
        total = sum(d.log_prob(values[k]).sum() for k, d in self.priors(values).items())
        return total + sum(position[k].sum() for k in self.positive)

    def log_likelihood(self, position: Position, row: Any) -> Any:
        """Return the log density of one row."""
        *given, seen = row
        return self.law(self.constrained(position), *given).log_prob(seen)

    @cached_property
    def positive(self) -> set[str]:
        """Names of the variables that are sampled as logarithms."""
        return {v.name for v in self.model.free_RVs if self.model.rvs_to_transforms[v] is not None}

    @cached_property
    def start(self) -> Position:
        """PyMC's start, on the real line."""
        point = self.model.initial_point()
        names = {self.model.rvs_to_values[v].name: v.name for v in self.model.free_RVs}
        return {names[key]: np.asarray(x, float) for key, x in point.items()}


def of_gallery(name: str, priors: Any, law: Any, **options: Any) -> Problem:
    """Take a model of the gallery."""
    return Problem(
        name,
        gallery.LARGE[name],
        priors,
        law,
        lambda: {k: (r.mean, r.sd) for k, r in gallery.reference(name).items()},
        **options,
    )


# ---------------------------------------------------------------------- logistic regression


def logistic_model(n: int, d: int, batch_size: int | None) -> pm.Model:
    """Logistic regression of MAMBA's experiments."""
    x, y = exact.logistic_rows(n, d)
    rows = (x, y) if batch_size is None else pm.Minibatch(x, y, batch_size=batch_size)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, exact.PRIOR_SD, shape=d)
        total_size = None if batch_size is None else n
        pm.Bernoulli("y", logit_p=rows[0] @ beta, observed=rows[1], total_size=total_size)
    return model


def logistic(n: int, d: int) -> Problem:
    """Return the problem of this size."""
    import numpyro.distributions as dist

    return Problem(
        f"logistic {n} {d}",
        partial(logistic_model, n, d),
        lambda _: {"beta": dist.Normal(0, exact.PRIOR_SD).expand([d])},
        lambda at, x: dist.Bernoulli(logits=x @ at["beta"]),
        partial(exact.logistic_moments, n, d),
    )


# ---------------------------------------------------------------------- the gallery's


def a9a() -> Problem:
    """Logistic regression of income on 123 binary features."""
    import numpyro.distributions as dist

    return of_gallery(
        "a9a",
        lambda _: {"intercept": dist.Normal(), "beta": dist.Normal().expand([123])},
        lambda at, x: dist.Bernoulli(logits=at["intercept"] + x @ at["beta"]),
    )


def poisson() -> Problem:
    """Poisson regression with exposures: 200,000 rows."""
    import jax.numpy as jnp
    import numpyro.distributions as dist

    return of_gallery(
        "poisson_unit",
        lambda _: {"intercept": dist.Normal(0, 2), "beta": dist.Normal().expand([10])},
        lambda at, x, e: dist.Poisson(e * jnp.exp(at["intercept"] + x @ at["beta"])),
    )


def hierarchical() -> Problem:
    """Logistic regression with intercepts of 500 groups: 100,000 rows."""
    import numpyro.distributions as dist

    return of_gallery(
        "hierarchical_logistic",
        lambda _: {
            "mu": dist.Normal(0, 1.5),
            "tau": dist.HalfNormal(1),
            "z": dist.Normal().expand([500]),
            "beta": dist.Normal().expand([5]),
        },
        lambda at, x, g: dist.Bernoulli(logits=at["mu"] + at["tau"] * at["z"][g] + x @ at["beta"]),
        proxy=False,
    )


def ratings() -> Problem:
    """Factorisation of MovieLens 100K, of MAMBA's experiments."""
    return Problem(
        "factorisation",
        factorisation.model,
        factorisation.priors,
        factorisation.law,
        factorisation.moments,
        proxy=False,
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{f"logistic {n} {d}": partial(logistic, n, d) for d in (10, 50) for n in SIZES},
    "poisson_unit": poisson,
    "hierarchical_logistic": hierarchical,
    "a9a": a9a,
    "factorisation": ratings,
}
