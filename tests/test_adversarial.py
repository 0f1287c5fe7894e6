"""Posteriors that samplers get wrong: right, refused, or warned of, and never silently wrong."""

import logging

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.exceptions import SamplingError
from scipy import stats

import pymc_sgmcmc as sg

from helpers.hard_posteriors import (
    LEVELS,
    cauchy,
    centred_schools,
    clusters,
    collinear,
    correlated_walk,
    discrete_neighbour,
    flat_priors,
    horseshoe,
    many_dimensions,
    many_predictors,
    mild_neighbour,
    no_noise,
    one_row,
    one_row_and_a_scale,
    rare_cell,
    separable_logistic,
    small_funnel,
    standard_normals,
    student,
    tiny_noise,
    unidentified,
    wide_prior_of_rates,
    wild_columns,
)
from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts

# What is promised: means to 0.1 sds, sds to a tenth; probabilities, for laws without moments
MEAN, SPREAD, PROBABILITY = 0.1, 0.1, 0.03


@dataclass
class Outcome:
    """What came of a run: an error, what was logged, and what is wrong."""

    error: str
    told: list
    wrong: list

    @property
    def kind(self):
        """Right, and whether something was said; or wrong, and what was said."""
        if self.error:
            return "refused"
        return ("wrong" if self.wrong else "right") + (", warned" if self.told else "")


OURS = ("While tuning,", "configurational temperature", "Gradient noise", "not finite")


def deviations(case, posterior, parts=20):
    """Yield what is off by more than is promised and what the draws leave unknown."""

    def compare(label, values, expected, slack):
        """Values of shape (chains, draws, elements)."""
        mean, error = mean_and_error(means_of_parts(values, parts))
        # As many comparisons as there are elements
        allowed = slack + max(STANDARD_ERRORS, stats.norm.isf(1e-4 / mean.size)) * error
        off = ~(abs(mean - expected) <= allowed)
        if np.any(off):
            k = int(np.argmax(off))
            return [f"{label}[{k}] {mean[k]:.3g}, not {expected:.3g}"]
        return []

    found = []
    for name, (mean, sd) in case.moments.items():
        z = (posterior[name].values - mean) / sd
        z = z.reshape(*z.shape[:2], -1)
        found += compare(f"mean of {name} in sds", z, 0.0, MEAN)
        found += compare(f"squared spread of {name}", z**2, 1.0, 2 * SPREAD)
    for name, quantiles in case.quantiles.items():
        x = posterior[name].values.reshape(*posterior[name].shape[:2], -1)
        for q, level in zip(quantiles, LEVELS, strict=True):
            found += compare(f"P({name} < {q:.3g})", x < q, level, PROBABILITY)
    return found


def outcome_of(case, method, caplog):
    with case.model, caplog.at_level(logging.WARNING, logger="pymc"):
        ours = [v for v in case.model.free_RVs if np.issubdtype(v.dtype, np.floating)]
        step = [method(ours, backend="jax"), *case.own_steps()]
        try:
            result = run(step if len(step) > 1 else step[0], model=case.model)
        except SamplingError as error:
            return Outcome(str(error), [], [])
    told = [text for text in caplog.messages if any(phrase in text for phrase in OURS)]
    return Outcome("", told, deviations(case, result.posterior))


# Right and nothing said
RIGHT = [
    one_row,
    one_row_and_a_scale,
    flat_priors,
    tiny_noise,
    collinear,
    unidentified,
    rare_cell,
    wild_columns,
    separable_logistic,
    small_funnel,
    mild_neighbour,
    clusters,
    standard_normals,
    many_predictors,
    many_dimensions,
    horseshoe,
    correlated_walk,
]
# Wrong or hard, and said so
TOLD = [no_noise, wide_prior_of_rates]
# Some runs are right, and those that are not say so
EITHER = [student, cauchy, centred_schools, discrete_neighbour]
# Of more than 20 s, or not needed in each run: by one method each, in turn. Neal's funnel is in
# test_centring.py, and other steps beside ours are in test_mixed.py too
SLOW = {
    standard_normals: sg.CoRVSGLD,
    unidentified: sg.MSGNHT,
    rare_cell: sg.CoRVSGLD,
    wild_columns: sg.MSGNHT,
    clusters: sg.CoRVSGLD,
    many_predictors: sg.MSGNHT,
    many_dimensions: sg.CoRVSGLD,
    horseshoe: sg.MSGNHT,
    correlated_walk: sg.CoRVSGLD,
    no_noise: sg.CoRVSGLD,
    wide_prior_of_rates: sg.MSGNHT,
    centred_schools: sg.MSGNHT,
    discrete_neighbour: sg.CoRVSGLD,
    mild_neighbour: sg.CoRVSGLD,
}
# Of quick ones, in which the second method's tuning ends in another way
SLOW_WITH_MSGNHT = (one_row_and_a_scale, tiny_noise, separable_logistic, cauchy)


def with_methods(cases):
    found = []
    for case in cases:
        quick = sg.MSGNHT if case is collinear else sg.CoRVSGLD
        methods = {quick: []} if case not in SLOW else {SLOW[case]: [pytest.mark.slow]}
        if case in SLOW_WITH_MSGNHT:
            methods[sg.MSGNHT] = [pytest.mark.slow]
        for method, marks in methods.items():
            name = f"{case.__name__}-{method.__name__}"
            found.append(pytest.param(case, method, marks=marks, id=name))
    return found


@pytest.mark.parametrize(("case", "method"), with_methods(RIGHT))
def test_right_and_silent(case, method, caplog):
    outcome = outcome_of(case(), method, caplog)
    assert outcome.kind == "right", outcome


@pytest.mark.parametrize(("case", "method"), with_methods(TOLD))
def test_told(case, method, caplog):
    outcome = outcome_of(case(), method, caplog)
    assert outcome.kind == "refused" or outcome.told, outcome


@pytest.mark.parametrize(("case", "method"), with_methods(EITHER))
def test_never_silently_wrong(case, method, caplog):
    outcome = outcome_of(case(), method, caplog)
    assert outcome.kind == "refused" or outcome.told or not outcome.wrong, outcome


def two_modes():
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.0)
        density = pt.logaddexp(
            np.log(0.3) + pm.logp(pm.Normal.dist(-8, 1), x),
            np.log(0.7) + pm.logp(pm.Normal.dist(8, 1), x),
        )
        pm.Potential("density", density)
    return model


def test_separated_modes_are_seen_only_where_chains_part(caplog):
    """No chain leaves its mode, and none knows of the other: R-hat is all that can tell.

    Where all chains start on one side of the barrier, nothing can: neither temperatures nor
    noise ratios are off, for each mode is sampled rightly.
    """
    model = two_modes()
    with model, caplog.at_level(logging.INFO, logger="pymc"):
        result = run(sg.CoRVSGLD(backend="jax"), chains=6, seed=3, compute_convergence_checks=True)
    x = result.posterior["x"].values
    side = np.sign(x.mean(axis=1))
    assert np.all(np.sign(x) == side[:, None])
    # 1,000 draws, of which at the least 300 are effective
    np.testing.assert_allclose(x.mean(axis=1), 8 * side, atol=STANDARD_ERRORS * 300**-0.5)
    np.testing.assert_allclose(x.std(axis=1), 1, atol=STANDARD_ERRORS * (2 * 300) ** -0.5)
    assert {-1.0, 1.0} == set(side)
    assert any("rhat statistic is larger" in text for text in caplog.messages)
    assert "configurational temperature" not in caplog.text
