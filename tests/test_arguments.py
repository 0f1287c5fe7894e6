"""Arguments of the wrong kind are refused by their names, with what to pass."""

from functools import partial

import numpy as np
import pymc
import pymc as pm
import pytest
import xarray as xr

import pymc_sgmcmc as sg

from helpers.results import result_of
from pymc_sgmcmc import testing, transforms
from pymc_sgmcmc.diagnostics import bias_report, gradient_noise, ksd, plot_bias

TWO_SIDED = transforms.Sigmoid, transforms.Arctan, transforms.Softsign
ONE_SIDED = transforms.Exp, transforms.Softplus, transforms.ICLL


def potential(**arguments):
    with pm.Model():
        x = pm.Normal("x")
        y = pm.Minibatch(np.zeros(100), batch_size=10)
        good = {"name": "g", "variables": [x], "rows": [y], "total_size": 100}
        good["gradient"] = lambda x, y, noise: (y - x).sum()
        sg.GradientPotential(**{**good, **arguments})


def noisy(shape):
    potential(gradient=lambda x, y, noise: noise.normal(shape(y)).sum())


def with_model(function, *arguments, **options):
    with pm.Model():
        pm.Normal("x", shape=2)
        return function(*arguments, **options)


GOOD = result_of(x=np.zeros((1, 10, 2)))
SEED = "^random_seed must be None, an integer of at least 0"
NUMBER = "must be a positive, finite number"
FUNCTION = "must be a function"
LIST = "must be a list such as"


def policies():
    for name in ("step_size", "noise", "noise_of_many", "widening"):
        for wrong in (-1, 0, np.nan, "word", True):
            yield (
                partial(sg.Policy, **{"step_size": 0.1, name: wrong}),
                f"^Policy's {name} {NUMBER}",
            )
    yield partial(sg.Policy, None), f"^Policy's step_size {NUMBER}"
    yield partial(sg.Policy, 0.1, "log"), "^Policy's coordinates must be one of 'lipschitz'"
    yield partial(sg.Policy, 0.1, power=3), "^Policy's power must be 1 or 2"
    yield partial(sg.Policy, 0.1, order="first"), "^Policy's order must be 1 or 2"
    yield partial(sg.Policy, 0.1, tuned=1), "^Policy's tuned must be True or False"
    yield partial(sg.Policy, 0.1, whitened=None), "^Policy's whitened must be True or False"


def registrations():
    for wrong in (3, None, "SGLD", int, [sg.SGLD]):
        yield partial(sg.register, sg.SGLD, wrong), "^register takes classes such as sg.SGLD, got"


def potentials():
    for name in (None, 3, b"g"):
        yield partial(potential, name=name), "^name must be of the class str"
    for gradient in (None, "word", 3):
        yield partial(potential, gradient=gradient), f"^gradient {FUNCTION}"
    for found in (None, "word", [None], {"x": 1.0}):
        gradient = lambda *arguments, found=found: found  # noqa: E731
        yield partial(potential, gradient=gradient), "'g' must return a tensor for each variable"
    for gradient in (lambda: 0.0, lambda x, y: 0.0):
        yield partial(potential, gradient=gradient), "'g' is called with 1 variables, 1 arrays"
    for variables in (None, "x", 3, ["x"], [None]):
        yield partial(potential, variables=variables), rf"^variables {LIST} \[theta\]"
    for rows in (None, "word", 3, np.zeros(3)):
        yield partial(potential, rows=rows), rf"^rows {LIST} \[y\]"
    yield partial(potential, rows=["word"]), "^rows must hold arrays"
    for size in (0, -100, 99.5, np.inf, np.nan, "100", True):
        yield partial(potential, total_size=size), "^total_size must be an integer of at least 1"
    for shape in (None, "word", 2.5, (-1,)):
        yield (
            partial(noisy, lambda y, shape=shape: shape),
            "^noise.normal needs a shape of integers",
        )
    yield partial(noisy, lambda y: y.shape), "^noise.normal needs a shape .* such as y.type.shape"
    good = {"gradient": lambda *x: 0.0, "variables": []}
    yield partial(sg.GradientPotential, "g", **good), "^model is missing"


def maps():
    for kind in (*TWO_SIDED, *ONE_SIDED):
        for wrong in ("word", 3, [0.0, 1.0]):
            yield partial(kind, bounds_fn=wrong), f"^The bounds_fn of {kind.__name__} {FUNCTION}"
        for wrong in (np.nan, "word", [0.0, np.nan], True):
            yield partial(kind, lower=wrong), f"^The bounds of {kind.__name__} must be numbers"
    for kind in TWO_SIDED:
        yield partial(kind, [0, 1], [1, 2, 3]), "`lower` must be below `upper` everywhere"
    for weight in ("word", {}, 1j, None, np.nan, 2):
        yield partial(transforms.Centring, weight), "`weight` must be between 0 .* and 1"


def diagnostics():
    for wrong in (-1, 1.5, "word"):
        yield partial(with_model, ksd, GOOD, random_seed=wrong), SEED
        yield partial(with_model, gradient_noise, None, GOOD, random_seed=wrong), SEED
        yield partial(with_model, bias_report, sg.SGLD, random_seed=wrong), SEED
    for group in ([1.0], {}, None):
        yield partial(with_model, ksd, GOOD, group=group), "^result has no group"
    for order in (np.array([1, 2]), "first"):
        yield partial(with_model, bias_report, sg.SGLD, order=order), "^order must be 1 or 2"
    for centre in (3, "word", [0.0]):
        options = {"point": {"x": [0.0, 0.0]}, "centre": centre}
        yield partial(with_model, gradient_noise, None, **options), "^centre must be a dict"
    for value in ("word", None, [0.0, None]):
        wrong = partial(with_model, gradient_noise, None, {"x": value})
        yield wrong, "^point must hold numbers, and has .* for 'x'"
    yield partial(plot_bias, xr.Dataset({"flagged": 3})), "^report must be the Dataset"


def targets_and_checks():
    def variance(h, noise):
        return 1.0

    targets = testing.gaussian, testing.correlated_gaussian, testing.normal_normal
    for target in targets:
        for wrong in (0, -1, 1.5, "word", np.inf):
            yield partial(target, wrong, variance, 0.1), "^dimension must be an integer of at least"
        for wrong in (0, -1, "word", np.nan, None):
            yield partial(target, 2, variance, wrong), f"^step_size {NUMBER}"
        yield partial(target, 2, 1.0, 0.1), f"^variance {FUNCTION}"
        yield (
            partial(target, 2, variance, 0.1, unknown=-1),
            "^unknown must be a finite number of at",
        )
    for target in targets[:2]:
        yield partial(target, 2, variance, 0.1, replicates=0), "^replicates must be an integer"
    for name in ("rows", "batch_size"):
        yield partial(targets[2], 2, variance, 0.1, **{name: 0}), f"^{name} must be an integer"
    half = {"name": "half", "build": lambda size: pm.HalfNormal("x", shape=size), "step_size": 0.1}
    for name, wrong, message in [
        ("build", 3, FUNCTION),
        ("transforms", "log", "must be one of 'lipschitz'"),
        ("transforms", 3, "must be one of 'lipschitz'"),
        ("relaxation", -1, NUMBER),
        ("replicates", 1.5, "must be an integer"),
    ]:
        yield partial(testing.one_dimensional, **{**half, name: wrong}), f"^{name} {message}"
    target = testing.gaussian(1, variance, 0.1, replicates=10)
    good = {"target": target, "make_step": sg.SGLD, "step_size": 0.1}
    for name, wrong, message in [
        ("target", None, "must be of the class Target"),
        ("make_step", "SGLD", FUNCTION),
        ("step_size", 0, NUMBER),
        ("draws", 0, "must be an integer"),
        ("seed", "word", "must be None, an integer"),
        ("errors", -1, NUMBER),
        ("patience", np.nan, NUMBER),
    ]:
        yield partial(testing.check, **{**good, name: wrong}), f"^{name} {message}"
    run = partial(testing.run_chain, burn=1, draws=1, seed=0)
    yield partial(run, "model", None), "^model must be of the class Model"
    yield partial(run, target.model, pm.NUTS), "^step must be of the class SGMCMCStep"
    yield partial(testing.check_sampler, 3, variance=variance), f"^make_step {FUNCTION}"
    yield partial(lambda: next(testing.matrix(1.0))), f"^variance {FUNCTION}"


KINDS = policies, registrations, potentials, maps, diagnostics, targets_and_checks


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_the_wrong_kind_are_named(kind):
    for wrong, message in kind():
        with pytest.raises((TypeError, ValueError)) as info:
            wrong()
        info.match(message)


def test_nothing_is_registered_beside_what_is_no_step_method():
    class Another(sg.SGLD):
        """Not yet registered."""

    with pytest.raises(TypeError):
        sg.register(Another, 3)
    assert Another not in pymc.step_methods.STEP_METHODS


def test_steps_outside_of_a_model_are_refused():
    with pytest.raises(TypeError, match=r"^model is missing: pass a pm\.Model, or call inside"):
        sg.SGLD()
