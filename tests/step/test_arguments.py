"""Nonsense in an argument ends in its name and its cure, before anything is compiled."""

from functools import partial

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc.distributions import transforms as of_pymc

import pymc_sgmcmc as sg

from helpers.sampling import QUIET
from helpers.steps import normal_and_scale, step_for
from pymc_sgmcmc.step.arguments import checked_backend

HUGE = 10**30


def model():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.HalfNormal("s")
        pm.Beta("p", 2, 2)
    return model


def own_density():
    with pm.Model() as model:
        pm.CustomDist("s", logp=lambda s: -s, initval=1.0)
    return model


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"thin": HUGE}, ValueError, r"^thin must be at most \d+, such as 20"),
        ({"rng": "seed"}, TypeError, r"^rng must be None, an integer .*random_seed="),
        ({"model": "x"}, TypeError, r"^model must be a pm\.Model, got 'x'\. Leave it out"),
        ({"compile_kwargs": {"opt": 1}}, TypeError, "^compile_kwargs has 'opt', .*mode"),
        ({"compile_kwargs": {"inputs": []}}, TypeError, "^compile_kwargs has 'inputs'"),
        ({"step_size": np.complex64(1)}, ValueError, "^step_size must be a positive"),
        ({"gradient": np.zeros(2)}, ValueError, "^gradient must be 'auto'"),
        ({"step_size": lambda: 0.1}, ValueError, "^The step_size schedule raised TypeError"),
        (
            {"step_size": lambda t: np.array([0.1])[t]},
            ValueError,
            "^The step_size schedule raised IndexError for the update numbers 0 to 1",
        ),
        ({"step_size": lambda t: 0.1 - t}, ValueError, "^The step_size .*for update 1 it returned"),
    ],
)
def test_nonsense_is_named(options, error, said):
    with pytest.raises(error, match=said):
        sg.MSGNHT(**{"model": model(), **options})


def test_variables_and_their_names_say_the_same():
    with pm.Model() as model:
        x = pm.Normal("x")
        y = pm.Normal("y", x, observed=np.zeros(60))
    options = [
        sg.SGLD(
            model=model, step_size=0.1, backend="jax", batch_size=10,
            batch_dim={of_y: 0}, scale={of_x: 2.0},
        ).options
        for of_y, of_x in [(y, x), ("y", "x")]
    ]  # fmt: skip
    assert options[0] == options[1]


def test_a_mode_of_none_is_none():
    backend, kwargs = checked_backend("numba", {"mode": None, "on_unused_input": "ignore"})
    assert (backend, kwargs) == ("numba", {"on_unused_input": "ignore"})


@pytest.mark.parametrize("thin", [3, "auto"])
def test_a_schedule_that_ends_too_early_is_named_before_the_draws(thin):
    """Step sizes for the draws alone, where the burn-in was forgotten."""
    updates = 50 * (20 if thin == "auto" else thin)
    table = np.full(updates, 0.1)
    step = sg.CoRVSGLD(model=model(), step_size=lambda t: table[t], thin=thin)
    seen = []
    options = {"chains": 1, "cores": 1, "callback": lambda trace, draw: seen.append(draw), **QUIET}
    with step.model, pytest.raises(ValueError, match="schedule raised IndexError"):
        pm.sample(50, step=step, tune=1, **options)
    assert not seen
    with step.model:
        pm.sample(49, step=step, tune=1, **options)
    assert len(seen) == 50


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (lambda: sg.cyclical(0.1, HUGE), ValueError, "^cyclical's period must be at most"),
        (
            lambda: sg.cyclical(0.1, 9, "half"),
            ValueError,
            "^cyclical's exploration must be at least 0",
        ),
        (lambda: sg.checkpoint(sg.SMLD, "run"), TypeError, "^step must be a step method"),
        (lambda: sg.checkpoint("SMLD", "run"), TypeError, "^step must be a step method"),
        (lambda: sg.full_data("x"), TypeError, r"^model must be a pm\.Model"),
        (lambda: sg.transforms.Softplus("1"), ValueError, "^`scale` must be positive"),
        (lambda: sg.transforms.Softplus(np.inf), ValueError, "^`scale` must be positive"),
        (lambda: sg.transforms.Sigmoid("0", 1), TypeError, "^The bounds of Sigmoid must be"),
    ],
)
def test_nonsense_beside_the_step_is_named(made, error, said):
    with pytest.raises(error, match=said):
        made()


@pytest.mark.parametrize(
    "method", [partial(sg.MirrorSGLD, step_size=0.1), partial(sg.FLA, drift="riesz"), sg.MSGNHT]
)
def test_an_estimator_may_be_given_as_a_class(method):
    assert method(model=model(), gradient=sg.Plain).options.gradient == sg.Plain()


@pytest.mark.parametrize(
    ("name", "transform", "fault"),
    [
        ("x", of_pymc.log, r"to above 0\.0, and 'x' is unbounded there"),
        ("x", sg.transforms.Softplus(), r"to above 0\.0, and 'x' is unbounded there"),
        ("s", sg.transforms.Softplus(lower=2.0), r"to above 2\.0, and 's' is above 0\.0"),
        ("s", sg.transforms.Sigmoid(0, 3), "to below 3, and 's' is unbounded there"),
        ("p", sg.transforms.Sigmoid(0, 0.5), r"to below 0\.5, and 'p' is below 1\.0"),
        ("s", of_pymc.simplex, "for the kind simplex, and 's' is of the kind half-line"),
        ("x", of_pymc.circular, "for the kind circle, and 'x' is of the kind real"),
    ],
)
def test_a_map_to_part_of_a_support_is_refused(name, transform, fault):
    with pytest.raises(ValueError, match=rf"^transforms\['{name}'\] is a map {fault}, so that"):
        sg.MSGNHT(model=model(), transforms={name: transform})


@pytest.mark.parametrize(
    ("build", "name", "transform"),
    [
        (model, "s", sg.transforms.Exp()),
        (model, "s", of_pymc.log_exp_m1),
        (model, "p", sg.transforms.Arctan(0, 1)),
        (model, "p", sg.transforms.Softplus()),
        (model, "x", of_pymc.Chain([of_pymc.ordered])),
        (own_density, "s", sg.transforms.Softplus()),
    ],
)
def test_a_map_onto_a_support_is_taken(build, name, transform):
    sg.MSGNHT(model=build(), transforms={name: transform})


def test_a_frozen_model_is_a_model(tmp_path):
    optimization = pytest.importorskip("pymc.model.transform.optimization")
    if not hasattr(optimization, "freeze_model"):
        pytest.skip("PyMC has no frozen models")
    frozen = optimization.freeze_model(normal_and_scale())
    step = step_for("SGLD", frozen)
    assert cloudpickle.loads(cloudpickle.dumps(step)).names == step.names
    assert sg.checkpoint(step, tmp_path / "run").model is frozen
