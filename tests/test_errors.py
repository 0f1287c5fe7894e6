"""Bad arguments of step methods are refused early, by their names and with their cure."""

import warnings

import numpy as np
import pymc as pm
import pytest

from pymc.exceptions import SamplingError

import pymc_sgmcmc as sg

from helpers.attempts import built, cases, check, mixed, sampled
from pymc_sgmcmc.step import arguments


def discrete():
    with pm.Model() as model:
        pm.Poisson("n", 3)
    return model


def empty():
    with pm.Model() as model:
        pm.Normal("nothing", shape=0)
    return model


def simulator():
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PyMC's own call of PyTensor
        a = pm.Normal("a")
        pm.Simulator("y", lambda rng, a, size=None: rng.normal(a, size=size), a, observed=[0.0])
    return model


def bounded_by_another():
    with pm.Model() as model:
        pm.TruncatedNormal("x", 0, 1, lower=pm.HalfNormal("s"))
    return model


def falls(t):
    return 0.1 - 0.05 * t


STEP_SIZE = r"^step_size must be"
SCHEDULE = r"^The step_size schedule must"
POSITIVE = r"a positive, finite number such as \d"
SAMPLED = r"Name only what it samples: x, s\."
CHOOSE = r"Choose from 'x', 's', 'k'\."

# (what is wrong, what is done, the exception, the name in its message, the cure in its message)
# fmt: off
BAD_ARGUMENTS = [
    # Step sizes and schedules
    ("step size missing", built(step_size=None), ValueError, STEP_SIZE, POSITIVE),
    ("step size negative", built(step_size=-0.1), ValueError, STEP_SIZE, POSITIVE),
    ("step size zero", built(step_size=0), ValueError, STEP_SIZE, POSITIVE),
    ("step size NaN", built(step_size=np.nan), ValueError, STEP_SIZE, POSITIVE),
    ("step size infinite", built(step_size=np.inf), ValueError, STEP_SIZE, POSITIVE),
    ("step size a bool", built(step_size=True), ValueError, STEP_SIZE, POSITIVE),
    ("step size a list", built(step_size=[0.1]), ValueError, STEP_SIZE, POSITIVE),
    ("step size a word", built(step_size="slow"), ValueError, STEP_SIZE, "number such as 0.1"),
    ("schedule negative", built(step_size=lambda t: -np.ones(len(t))), ValueError, SCHEDULE,
     "polynomial"),
    ("schedule NaN", built(step_size=lambda t: np.nan * t), ValueError, SCHEDULE, "polynomial"),
    ("schedule scalar", built(step_size=lambda t: 0.1), ValueError, SCHEDULE, "polynomial"),
    ("schedule a word", built(step_size=lambda t: "small"), ValueError, SCHEDULE, "polynomial"),
    ("schedule with a mask", built(step_size=lambda t: np.ma.array(np.ones(len(t)), mask=t > 0)),
     ValueError, SCHEDULE, "polynomial"),
    ("schedule a mask", built(step_size=lambda t: t < 10), ValueError, SCHEDULE, "polynomial"),
    ("schedule falls below 0", sampled(step_size=falls), ValueError, SCHEDULE, "polynomial"),
    ("constant", lambda: sg.constant(0), ValueError, STEP_SIZE, POSITIVE),
    ("polynomial's a", lambda: sg.polynomial(-1), ValueError, "polynomial's a", POSITIVE),
    ("polynomial's b", lambda: sg.polynomial(1, b=0), ValueError, "polynomial's b", POSITIVE),
    ("polynomial's gamma negative", lambda: sg.polynomial(1, gamma=-0.5), ValueError,
     "polynomial's gamma", POSITIVE),
    ("polynomial's gamma above 1", lambda: sg.polynomial(1, gamma=2), ValueError,
     "polynomial's gamma", r"at most 1.*0\.55 is usual"),
    # Other arguments
    ("thin zero", built(thin=0), ValueError, "^thin", "integer of at least 1, such as 20"),
    ("thin a float", built(thin=2.5), ValueError, "^thin", "integer of at least 1, such as 20"),
    ("batch scheme", built(batch="epochs"), ValueError, "^batch", "'shuffled', 'random'"),
    ("temperature zero", built(temperature=0), ValueError, "^temperature", POSITIVE),
    ("backend", built(backend="c"), ValueError, "^backend", "'auto', 'jax', 'numba'"),
    ("mode against backend", built(backend="numba", compile_kwargs={"mode": "JAX"}), ValueError,
     r"^compile_kwargs\['mode'\]='JAX'.*backend='numba'",
     "Pass backend='jax' or backend='numba' alone"),
    ("mode of a third backend", built(compile_kwargs={"mode": "FAST_COMPILE"}), ValueError,
     r"^compile_kwargs\['mode'\]", "Pass backend='jax' or backend='numba' alone"),
    ("mode unknown", built(compile_kwargs={"mode": "fast"}), ValueError,
     r"^compile_kwargs\['mode'\]='fast'", "Pass backend='jax' or backend='numba' alone"),
    ("compile_kwargs no dict", built(compile_kwargs="JAX"), TypeError, "^compile_kwargs",
     "pass backend='jax'"),
    ("argument misspelt", built(stepsize=0.1), TypeError, "SGLD has no argument 'stepsize'",
     "Did you mean 'step_size'"),
    ("argument unknown", built(learning_rate=0.1), TypeError,
     "SGLD has no argument 'learning_rate'", "It takes step_size, thin"),
    ("argument of another method", built(method=sg.FLA, integrator="lm"), TypeError,
     "FLA has no argument 'integrator'", "It takes alpha, largest_drift"),
    # Arguments of one method
    *(
        (f"alpha {alpha}", built(method=sg.FLA, alpha=alpha), ValueError, "^alpha",
         r"1 < alpha <= 2, such as 1\.8")
        for alpha in (1, -1.5, 2.1, np.nan, "1.8")
    ),
    ("largest_drift", built(method=sg.FLA, largest_drift=0), ValueError, "^largest_drift",
     POSITIVE),
    ("largest_jump", built(method=sg.FLA, largest_jump=np.nan), ValueError, "^largest_jump",
     POSITIVE),
    ("integrator of the thermostat", built(method=sg.MSGNHT, integrator="lm"), ValueError,
     "^integrator", "'ssi', 'euler'"),
    ("integrator of Langevin", built(method=sg.CoRVSGLD, integrator="ssi"), ValueError,
     "^integrator", "'lm', 'euler'"),
    ("diffusion", built(method=sg.MSGNHT, diffusion=0), ValueError, "^diffusion", POSITIVE),
    ("thermostat_mass", built(method=sg.MSGNHT, thermostat_mass=-1), ValueError, "^thermostat_mass",
     POSITIVE),
    # Coordinates and whitening
    ("transforms a word", built(transforms="log"), ValueError, "^transforms",
     "'lipschitz', 'model', 'mirror'"),
    ("transforms a number", built(transforms=1), TypeError, "^transforms",
     "dict of variable names to transforms"),
    ("transforms of a variable that is not sampled",
     built(transforms={"k": sg.transforms.Softplus()}), ValueError, "transforms names 'k'",
     SAMPLED),
    ("transforms of a variable that is not in the model",
     built(transforms={"sigma": sg.transforms.Softplus()}), ValueError, "transforms names 'sigma'",
     SAMPLED),
    ("transforms with no Transform", built(transforms={"s": "softplus"}), TypeError,
     r"transforms\['s'\]", r"such as sg\.transforms\.Softplus\(\)"),
    ("scale negative", built(scale={"s": -1.0}), ValueError, r"scale\['s'\]",
     "positive, finite numbers: about one posterior sd"),
    ("scale NaN", built(scale={"x": [1.0, np.nan]}), ValueError, r"scale\['x'\]",
     "positive, finite numbers: about one posterior sd"),
    *(
        (f"scale {kind}", built(scale={"x": value}), ValueError, r"scale\['x'\]",
         "positive, finite numbers: about one posterior sd")
        for kind, value in [
            ("with a mask", np.ma.array([1.0, 2.0], mask=[False, True])),
            ("a mask", [True, False]),
            ("of rows of different lengths", [[1.0, 2.0], [1.0]]),
        ]
    ),
    ("scale of an unknown name", built(scale={"z": 1.0}), ValueError, "scale names 'z'", SAMPLED),
    *(
        (f"{name} of a number", built(**{name: {1: 1.0}}, **more), TypeError,
         f"^{name} must have variables, or their names, as keys, got 1", "as keys")
        for name, more in [
            ("scale", {}), ("transforms", {}), ("batch_dim", {"batch_size": 1}),
        ]
    ),
    ("scale no dict", built(scale=0.1), TypeError, "^scale", r"such as \{'x': 0\.1\}"),
    ("scale a class", built(scale=dict), TypeError, "^scale is the class dict", "Pass a function"),
    ("scale a function, untuned", built(method=sg.SGRLD, scale=np.diag), ValueError,
     "scale=diag would be called", "Pass scale=None, or a dict of arrays"),
    ("scale a function that returns nothing", sampled(scale=lambda root: None), SamplingError,
     r"^Tuning failed: scale=.*<lambda> must return", r"of shape \(2, 2\) or \(2,\)"),
    ("scale of a wrong shape", sampled(model=mixed, vars=["x"], scale={"x": np.ones(3)}),
     ValueError, r"scale\['x'\] has shape \(3,\)",
     r"shape \(2,\)\. Pass an array of that shape, or one number"),
    # Variables
    ("variable discrete", built(vars=["k"]), ValueError, "variable 'k' is discrete",
     "give it a step method of its own"),
    ("variables all discrete", built(model=discrete), ValueError, "all are discrete",
     r"let pm\.sample\(\) choose"),
    ("variable unknown", built(vars=["z"]), ValueError, "vars has 'z'", CHOOSE),
    ("variable of another model", built(vars=[mixed()["s"]]), ValueError, "vars has 's'", CHOOSE),
    ("variable an expression", built(vars=[mixed()["x"] + 1]), ValueError, "vars has", CHOOSE),
    ("variable a number", built(vars=[3]), ValueError, "vars has 3", CHOOSE),
    ("variable twice", built(vars=["x", "s", "x"]), ValueError, "vars names the variable 'x' twice",
     "name it once"),
    ("no variables named", built(vars=[]), ValueError, "vars is empty", "leave vars out"),
    ("no free variables", built(model=pm.Model), ValueError, "no free variables",
     r"Give it one without observed="),
    ("no elements", built(model=empty), ValueError, "'nothing' has no elements",
     "a shape without 0"),
    ("a simulator", built(model=simulator), ValueError, r"'y' is a pm\.Simulator",
     r"pm\.sample_smc"),
    *(
        (f"{method.__name__} moves a bound", built(model=bounded_by_another, method=method),
         NotImplementedError, f"^A bound of 'x' depends on a variable that {method.__name__} moves",
         r"Take sg\.CoRVSGLD")
        for method in (sg.MirrorSGLD, sg.SGRLD, sg.ItoSGLD)
    ),
]
# fmt: on


@cases(BAD_ARGUMENTS)
def test_bad_input_is_named_with_its_cure(bad, exception, name, cure):
    check(bad, exception, name, cure)


def test_jax_not_installed(monkeypatch):
    monkeypatch.setattr(arguments, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^backend='jax'.*pip install 'pymc-sgmcmc\[jax\]'"):
        built(backend="jax")()


def test_mirrored_langevin_takes_unbounded_variables():
    built(method=sg.SMLD)()
