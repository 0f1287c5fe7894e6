"""Models that several step methods sample together.

Each names the model, how the list of steps is made, ``steps(model, method, **options)``, and
where its reference comes from: ``exact()``, or NUTS on ``marginal()``, which has the same posterior
with indicators summed out and all rows. ``method`` is a class of this package; ``pm.NUTS`` in its
place shows what blocks cost by themselves. Minibatched models take ``batch_size``, None for all
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.transforms import ordered
from registry import Builder, batched, built

import pymc_sgmcmc as sg

from . import exact
from .pairs import lines_of_groups, moments_of_lines

# From a model, a class and its options, such as the backend
Steps = Callable[..., list[Any]]


@dataclass(frozen=True)
class Mixed:
    """A model, the steps of its variables and its reference."""

    model: Builder
    steps: Steps
    marginal: Builder | None = None
    exact: Callable[[], exact.Moments] | None = None

    batched: bool = False

    def __call__(self, *batch_size: int) -> pm.Model:
        """Build the model that is sampled."""
        return self.model(*batch_size)

    def all_rows(self) -> pm.Model:
        """Build it without minibatches."""
        return self.model(None) if self.batched else self.model()


def blocks(*names: Sequence[str], **others: Callable[..., Any]) -> Steps:
    """Give one step of the method to each list of names, and other step methods to one variable.

    A block that begins with the class ``SMLD`` has that method, whatever the others have, unless
    NUTS takes the place of all.
    """

    def steps(model: pm.Model, method: Any, **options: Any) -> list[Any]:
        made = []
        for block in names:
            own = sg.SMLD if block[0] == "SMLD" and method is not pm.NUTS else method
            variables = [model[name] for name in block if name != "SMLD"]
            made.append(own(variables, model=model, **options))
        return made + [other([model[name]], model=model) for name, other in others.items()]

    return steps


# ------------------------------------------------------------------ two of ours, one minibatch


def linear(centre: float) -> Builder:
    @built
    def build(batch_size: int | None = 200) -> None:
        x, y = exact.line(centre)
        rows = batched(batch_size, x, y)
        a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 10)
        s = pm.HalfNormal("s", 5)
        pm.Normal("y", a + b * rows[0], s, observed=rows[1], total_size=len(y))

    return build


@built
def poisson(batch_size: int | None = 200) -> None:
    """Poisson regression on correlated columns: 20,000 rows."""
    rng = np.random.default_rng(4)
    n = 20_000
    x = 0.5 + rng.normal(size=(n, 4)) @ np.linalg.cholesky(0.4 + 0.6 * np.eye(4)).T
    y = rng.poisson(np.exp(0.5 + x @ [0.3, -0.2, 0.1, 0.2])).astype("int32")
    xb, yb = batched(batch_size, x, y)
    intercept = pm.Normal("intercept", 0, 3)
    first, rest = pm.Normal("first", 0, 1), pm.Normal("rest", 0, 1, shape=3)
    log_rate = intercept + first * xb[:, 0] + xb[:, 1:] @ rest
    pm.Poisson("y", pt.exp(log_rate), observed=yb, total_size=n)


# ------------------------------------------------------------------ mixtures

CENTRES = np.array([-4.0, 0.0, 4.0])
# With components so much farther apart Gibbs steps for indicators mix
APART = 1.75


def three(n: int, apart: float = 1.0) -> np.ndarray:
    """Rows of a mixture of three normals."""
    rng = np.random.default_rng(3)
    return rng.normal(apart * CENTRES[rng.choice(3, n, p=[0.2, 0.3, 0.5])], 1)


def parameters(start: float = 0.5) -> tuple[Any, Any, Any]:
    w = pm.Dirichlet("w", np.ones(3))
    mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=start * CENTRES)
    return w, mu, pm.HalfNormal("s", 2, shape=3)


@built
def mixture(n: int, batch_size: int | None) -> None:
    y = three(n)
    rows = y if batch_size is None else pm.Minibatch(y, batch_size=batch_size)
    w, mu, s = parameters()
    pm.NormalMixture("y", w, mu, s, observed=rows, total_size=n)


def large_mixture(batch_size: int | None = 200) -> pm.Model:
    return mixture(20_000, batch_size)


def small_mixture() -> pm.Model:
    return mixture(500, None)


@built
def apart_mixture() -> None:
    w, mu, s = parameters(APART)
    pm.NormalMixture("y", w, mu, s, observed=three(500, APART))


@built
def indicated_mixture(apart: float = 1.0) -> None:
    """Return the small mixture with an indicator for each row."""
    y = three(500, apart)
    w, mu, s = parameters()
    z = pm.Categorical("z", w, shape=len(y))
    pm.Normal("y", mu[z], s[z], observed=y)


def signal() -> np.ndarray:
    """Rows a third of which are not about zero."""
    rng = np.random.default_rng(2)
    return rng.normal(np.where(np.arange(300) < 100, 4.0, 0.0), 1)


@built
def indicated_signal() -> None:
    y = signal()
    p = pm.Beta("p", 1, 1)
    mu, s = pm.Normal("mu", 0, 10), pm.HalfNormal("s", 5)
    z = pm.Bernoulli("z", p, shape=len(y))
    pm.Normal("y", mu * z, s, observed=y)


@built
def marginal_signal() -> None:
    p = pm.Beta("p", 1, 1)
    # Where NUTS would not start at the lesser mode, all rows with one centre
    mu, s = pm.Normal("mu", 0, 10, initval=4), pm.HalfNormal("s", 5)
    pm.NormalMixture("y", pt.stack([1 - p, p]), pt.stack([0.0, mu]), s, observed=signal())


# ------------------------------------------------------------------ beside PyMC's own


@built
def normal_gamma() -> None:
    """Mean and precision of normal rows, with the conjugate prior."""
    tau = pm.Gamma("tau", *exact.GAMMA)
    mu = pm.Normal("mu", 0, tau=exact.WEIGHT * tau)
    pm.Normal("y", mu, tau=tau, observed=exact.sample())


@built
def hierarchical_normal() -> None:
    """Twelve groups of fifteen rows, centred."""
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(12), 15)
    y = rng.normal(2, 0.8, 12)[group] + rng.normal(0, 1, len(group))
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 2)
    theta = pm.Normal("theta", mu, tau, shape=12)
    pm.Normal("y", theta[group], pm.HalfNormal("sigma", 2), observed=y)


@built
def hierarchical_logit() -> None:
    """Logistic regression with varying intercepts, centred: 15 groups of 100 rows."""
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(15), 100)
    x = rng.normal(size=(len(group), 2))
    logit = rng.normal(-0.5, 1, 15)[group] + x @ [0.8, -0.4]
    y = rng.random(len(group)) < 1 / (1 + np.exp(-logit))
    mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
    theta = pm.Normal("theta", mu, tau, shape=15)
    beta = pm.Normal("beta", 0, 1, shape=2)
    pm.Bernoulli("y", logit_p=theta[group] + x @ beta, observed=y)


@built
def change_point() -> None:
    """Coal-mining disasters of each year, at two rates."""
    years = np.arange(len(exact.DISASTERS))
    early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
    change = pm.DiscreteUniform("change", 0, len(years) - 1)
    rate = pt.switch(years < change, early, late)
    pm.Poisson("y", rate, observed=exact.DISASTERS)


def beside_nuts(model: pm.Model, method: Any, **options: Any) -> list[Any]:
    weights = method([model["w"]], model=model, **options)
    return [weights, pm.NUTS([model["mu"], model["s"]], model=model)]


MIXED = {
    "linear_blocks": Mixed(
        linear(0), blocks(["a"], ["b", "s"]), exact=lambda: exact.linear(0), batched=True
    ),
    "linear_correlated_blocks": Mixed(
        linear(1), blocks(["a"], ["b", "s"]), exact=lambda: exact.linear(1), batched=True
    ),
    "poisson_three_blocks": Mixed(
        poisson,
        blocks(["intercept"], ["first"], ["rest"]),
        marginal=lambda: poisson(None),
        batched=True,
    ),
    "lines_of_groups_blocks": Mixed(
        lines_of_groups,
        blocks(["mu", "tau", "a", "b"], ["sigma"]),
        exact=moments_of_lines,
        batched=True,
    ),
    "mixture_blocks": Mixed(
        large_mixture,
        blocks(["SMLD", "w"], ["mu", "s"]),
        marginal=lambda: large_mixture(None),
        batched=True,
    ),
    "hierarchical_normal_blocks": Mixed(
        hierarchical_normal, blocks(["mu", "tau", "sigma"], ["theta"]), marginal=hierarchical_normal
    ),
    "hierarchical_logit_blocks": Mixed(
        hierarchical_logit, blocks(["tau"], ["mu", "theta", "beta"]), marginal=hierarchical_logit
    ),
    "mixture_indicators": Mixed(
        indicated_mixture,
        blocks(["SMLD", "w"], ["mu", "s"], z=pm.CategoricalGibbsMetropolis),
        marginal=small_mixture,
    ),
    "mixture_indicators_apart": Mixed(
        lambda: indicated_mixture(APART),
        blocks(["SMLD", "w"], ["mu", "s"], z=pm.CategoricalGibbsMetropolis),
        marginal=apart_mixture,
    ),
    # Its reference is that of the one with indicators
    "mixture_nuts": Mixed(small_mixture, beside_nuts, marginal=small_mixture),
    "signal_indicators": Mixed(
        indicated_signal,
        blocks(["p", "mu", "s"], z=pm.BinaryGibbsMetropolis),
        marginal=marginal_signal,
    ),
    "normal_gamma_slice": Mixed(
        normal_gamma, blocks(["mu"], tau=pm.Slice), exact=exact.normal_gamma
    ),
    "hierarchical_normal_slice": Mixed(
        hierarchical_normal,
        blocks(["mu", "theta", "sigma"], tau=pm.Slice),
        marginal=hierarchical_normal,
    ),
    "hierarchical_logit_slice": Mixed(
        hierarchical_logit,
        blocks(["mu", "theta", "beta"], tau=pm.Slice),
        marginal=hierarchical_logit,
    ),
    "change_point_metropolis": Mixed(
        change_point, blocks(["early", "late"], change=pm.Metropolis), exact=exact.change_point
    ),
}
