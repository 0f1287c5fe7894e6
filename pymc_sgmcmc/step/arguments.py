"""Checks of a step method's arguments: an error names the argument, the fault and the cure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import signature
from typing import Any

import numpy as np

from pymc.distributions.simulator import SimulatorRV
from pymc.logprob.transforms import ChainedTransform, Transform
from pymc.model import Model
from pymc.util import get_random_generator
from pymc.vartypes import continuous_types
from pytensor.compile.maker import function
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import (
    a_model,
    by_name,
    is_auto,
    name_of,
    one_of,
    positive,
    positive_int_or_auto,
    without_elements,
)
from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.options import Options, OwnWhitening
from pymc_sgmcmc.kernel.policy import TRANSFORM_CHOICES, Policy
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.model.minibatch import Minibatch
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.properties import is_sum_of_trees
from pymc_sgmcmc.model.support import kind_of_support, narrower
from pymc_sgmcmc.schedules import as_schedule, step_sizes, thin_of
from pymc_sgmcmc.step.options import signature_of
from pymc_sgmcmc.transforms import EntropicMirror
from pymc_sgmcmc.transforms.bounded import Bounded

# Arguments of pm.compile but for those that the package passes itself
_FOR_COMPILE = [
    "random_seed",
    *[k for k in signature(function).parameters if k not in ("inputs", "outputs", "givens")],
]


def checked_options(
    method: str, policy: Policy, model: Model, names: list[str], asked: Mapping[str, Any]
) -> Options:
    """Return the options that were asked for, by the names of arguments.

    ``batch_size`` and ``batch_dim`` follow from the rows.
    """
    asked = {**asked, "gradient": checked_gradient(asked["gradient"])}
    if reason := _why_by_hand(method, policy, model):
        asked |= _by_hand(reason, asked)
    scale = asked["scale"]
    if not policy.whitened:
        if scale is not None and not is_auto(scale):
            raise ValueError(
                f"{method} takes no whitening, got scale={scale!r}. Leave scale out, or pass "
                "scale=None."
            )
        scale = None
    schedule = None if is_auto(asked["step_size"]) else as_schedule(asked["step_size"])
    if schedule is not None:
        step_sizes(schedule, np.arange(2))
    thin = positive_int_or_auto("thin", asked["thin"], usual=20)
    thin_of(schedule, thin)
    backend, compile_kwargs = checked_backend(asked["backend"], asked["compile_kwargs"])
    options = Options(
        step_size=schedule,
        thin=thin,
        scale=_checked_scale(scale, names),
        gradient=asked["gradient"],
        batches=positive_int_or_auto("batches", asked["batches"], usual=1) or "auto",
        batch=one_of("batch", asked["batch"], BATCH_SCHEMES),
        **_checked_transforms(asked["transforms"], model, names, policy.coordinates),
        temperature=positive("temperature", asked["temperature"], usual=1.0),
        backend=backend,
        compile_kwargs=compile_kwargs,
    )
    if asked["centring"] is None:
        return options
    if not is_auto(asked["centring"]):
        raise ValueError(f"centring must be 'auto' or None, got {asked['centring']!r}.")
    # Scales by hand are those of the coordinates of the model as it is written
    return replace(options, centring=options.whitens_by_tuning() and not options.is_complete())


def sampled_values(model: Model, variables: Any) -> list[TensorVariable]:
    """Value variables of what the user wants to sample; by default all continuous ones."""
    if variables is None:
        rvs = model.values_to_rvs
        values = [x for x in model.continuous_value_vars if not is_sum_of_trees(rvs[x])]
        if not values:
            raise ValueError(
                "The model has no continuous free variable to sample: all are discrete. Leave "
                "this step method out and let pm.sample() choose."
            )
        return values
    if isinstance(variables, str) or not isinstance(variables, Sequence):
        variables = [variables]
    values = [_value_of(model, variable) for variable in variables]
    for value in values:
        name = model.values_to_rvs[value].name
        if value.dtype not in continuous_types:
            raise ValueError(
                f"The variable '{name}' is discrete and has no gradient. Leave it out of vars "
                "and give it a step method of its own: "
                "step=[sg.CoRVSGLD([...]), pm.Metropolis([...])]."
            )
        if is_sum_of_trees(model.values_to_rvs[value]):
            raise ValueError(
                f"The variable '{name}' is a sum of trees, which only a step method of their own "
                "can sample. Leave it out of vars: PyMC chooses that method."
            )
        if values.count(value) > 1:
            raise ValueError(f"vars names the variable '{name}' twice; name it once.")
    return values


def refuse_unfit(model: Model, variables: Any) -> None:
    """Raise where there is nothing to sample, or no density to sample."""
    model = a_model(model)
    if not model.free_RVs:
        raise ValueError(
            "The model has no free variables, so that there is nothing to sample. Give it one "
            "without observed=, or use pm.sample_prior_predictive."
        )
    if all(0 in rv.type.shape for rv in model.free_RVs):
        raise ValueError(without_elements(model.free_RVs[0].name))
    if isinstance(variables, list | tuple) and not variables:
        raise ValueError("vars is empty. Name a variable, or leave vars out to sample all.")
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, SimulatorRV):
            raise ValueError(
                f"The variable '{rv.name}' is a pm.Simulator, which has no log density but "
                "simulations that are compared with the data. Sample the model with "
                "pm.sample_smc(), or give the variable a distribution."
            )


def refuse_unknown(method: type, unknown: Collection[str]) -> None:
    """Raise for a keyword that no ``__init__`` of a step method takes."""
    if not unknown:
        return
    known = [
        name
        for name, parameter in signature_of(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    name = next(iter(unknown))
    close = get_close_matches(name, known, n=1)
    raise TypeError(
        f"{method.__name__} has no argument '{name}'."
        + (f" Did you mean '{close[0]}'?" if close else "")
        + f" It takes {', '.join(known)}."
    )


def _value_of(model: Model, variable: Any) -> TensorVariable:
    rv = model.named_vars.get(variable) if isinstance(variable, str) else variable
    value: Any = model.rvs_to_values.get(rv, rv) if isinstance(rv, Variable) else None
    if value not in model.value_vars:
        named = getattr(variable, "name", None) or variable
        free = ", ".join(f"'{rv.name}'" for rv in model.free_RVs)
        raise ValueError(
            f"vars has {named!r}, which is not a free variable of the model. Choose from {free}."
        )
    return value


def check_batches(batches: int | str, minibatches: Sequence[Minibatch], batch: str) -> None:
    """Refuse to average more batches than the data have, and to pick single rows from a disk."""
    if batch == "random" and has_source([minibatch.arrays() for minibatch in minibatches]):
        raise ValueError(
            "batch='random' picks single rows, of which each would be a read of its own where rows "
            "are on disk. Bring the rows into random order once, with sg.shuffle_to_disk, and "
            "leave batch out."
        )
    rows = [(minibatch.count, minibatch.batch_size) for minibatch in minibatches]
    if batch == "random" and any(n == size for n, size in rows):
        raise ValueError(
            "batch='random' draws with replacement: a batch as large as the data leaves out a "
            "third of the rows. Leave batch out, or take no minibatches."
        )
    if batches == "auto":
        return
    if not minibatches and int(batches) > 1:
        raise ValueError(
            f"batches={batches}, but there are no minibatches: all data are one batch, whose "
            "gradient is exact. Leave batches out."
        )
    n, size = max(rows, key=lambda pair: -(-pair[0] // pair[1]), default=(1, 1))
    most = -(-n // size)
    if int(batches) > most:
        raise ValueError(
            f"batches={batches}, but the data have only {most} batches: {n} rows in batches of "
            f"{size}. Pass at most batches={most}, or take no minibatches, to sample with the full "
            "gradient."
        )


def checked_gradient(gradient: Any) -> Any:
    """Check for "auto", "plain" or an estimator."""
    estimators = Plain, ControlVariates, SVRG
    if isinstance(gradient, type) and gradient in estimators:
        gradient = gradient()
    if isinstance(gradient, estimators):
        return gradient
    if isinstance(gradient, str) and gradient in ("auto", "plain"):
        return Plain() if gradient == "plain" else gradient
    raise ValueError(
        "gradient must be 'auto', 'plain', sg.ControlVariates() or sg.SVRG(refresh=...), got "
        f"{gradient!r}."
    )


def _why_by_hand(method: str, policy: Policy, model: Model) -> str | None:
    """Return why nothing can be tuned, None where it can."""
    if policy.coordinates == "identity":
        return f"{method} runs in θ itself, where bounds leave no scale to be tuned"
    if not policy.tuned:
        return f"{method} as it is asked for is a baseline whose flaws no tuning would mend"
    if has_own_gradient(model.potentials):
        return "The model has a GradientPotential, of which no density is known"
    return None


def _by_hand(reason: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that "auto" has where nothing is tuned; refuse what would have to be."""
    gradient, scale = asked["gradient"], asked["scale"]
    if is_auto(asked["step_size"]):
        raise ValueError(
            f"{reason}: the step size cannot be tuned. Pass step_size, such as 0.001, and compare "
            "with half of it."
        )
    if isinstance(gradient, ControlVariates | SVRG):
        raise ValueError(
            f"{reason}: gradient={gradient!r} needs an anchor that cannot be had. Pass "
            "gradient='plain'."
        )
    if callable(scale):
        raise ValueError(
            f"{reason}: scale={name_of(scale)} would be called with a Gaussian that cannot be "
            "tuned. Pass scale=None, or a dict of arrays."
        )
    if isinstance(scale, str) and scale in ("dense", "diagonal"):
        raise ValueError(
            f"{reason}: scale={scale!r} cannot be tuned. Pass scale=None, or a dict of arrays."
        )
    thin = thin_of(as_schedule(asked["step_size"]), None)
    usual = {"thin": thin, "scale": None, "batches": 1}
    chosen = {name: value for name, value in usual.items() if is_auto(asked[name])}
    return {**chosen, "gradient": Plain()}


def kinds_of_support(model: Model, values: Sequence[TensorVariable]) -> tuple[str, ...]:
    """Return the kind of each variable's support, and refuse those that hold a single point."""
    kinds = []
    for value in values:
        rv = model.values_to_rvs[value]
        transform = model.rvs_to_transforms[rv]
        if isinstance(transform, ChainedTransform):
            first, *later = transform.transform_list
            to_bounds = any(isinstance(x, Bounded | EntropicMirror) for x in later)
            if to_bounds and kind_of_support(first, rv)[0] != "other":
                raise ValueError(
                    f"The variable '{rv.name}' has a map to its bounds as transform=, which PyMC "
                    "applies after the distribution's own, so that part of its posterior would be "
                    "left out. Pass it as default_transform=."
                )
        kind, _, _ = kind_of_support(transform, rv)
        if kind == "simplex" and rv.type.shape[-1] == 1:
            raise ValueError(
                f"The variable '{rv.name}' is a simplex of one entry, which is always 1. Put the "
                "number 1 in its place, or give it a second entry."
            )
        kinds.append(kind)
    return tuple(kinds)


def _checked_transforms(
    transforms: Any, model: Model, names: list[str], of_method: str
) -> dict[str, Any]:
    """Return the options that say which coordinates are chosen: by default the method's own."""
    if transforms is None:
        return {"transforms": of_method}
    if of_method == "identity":
        raise ValueError(
            "This method runs in θ itself and takes no transforms, got "
            f"transforms={transforms!r}. Leave transforms out."
        )
    if isinstance(transforms, str):
        return {"transforms": one_of("transforms", transforms, TRANSFORM_CHOICES)}
    if not isinstance(transforms, Mapping):
        listed = ", ".join(repr(choice) for choice in TRANSFORM_CHOICES)
        raise TypeError(
            f"transforms must be one of {listed} or a dict of variable names to transforms, got "
            f"{transforms!r}."
        )
    named = _named("transforms", transforms, names)
    for name, transform in named.items():
        if transform is not None and not isinstance(transform, Transform):
            raise TypeError(
                f"transforms['{name}'] must be a PyMC Transform, such as sg.transforms.Softplus(), "
                f"or None, got {transform!r}."
            )
        if transform is not None and (fault := narrower(transform, model, model[name])):
            raise ValueError(
                f"transforms['{name}'] is a map {fault}, so that part of its posterior would be "
                "left out. Pass one with the variable's own support, or leave it out of transforms."
            )
    return {"transforms": of_method, "named_transforms": named}


def _checked_scale(
    scale: Any, names: list[str]
) -> str | dict[str, np.ndarray] | OwnWhitening | None:
    """Check the whitening; what a function returns is checked where it is called."""
    if scale is None:
        return None
    if isinstance(scale, type):
        raise TypeError(f"scale is the class {name_of(scale)}. Pass a function, or an instance.")
    if callable(scale):
        return scale
    if isinstance(scale, str) and scale in ("auto", "dense", "diagonal"):
        return scale
    if not isinstance(scale, Mapping):
        raise (ValueError if isinstance(scale, str) else TypeError)(
            "scale must be 'auto', 'dense', 'diagonal', None, a function of tuning's root or a "
            f"dict of variable names to positive arrays, such as {{'{names[0]}': 0.1}}, got "
            f"{scale!r}."
        )
    checked = {}
    for name, value in _named("scale", scale, names).items():
        try:
            array = np.asarray(np.nan if np.ma.is_masked(value) else value)
        except ValueError:  # of rows of different lengths
            array = np.asarray(np.nan)
        if array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)) or np.any(array <= 0):
            raise ValueError(
                f"scale['{name}'] must hold positive, finite numbers: about one posterior sd for "
                "each element."
            )
        checked[name] = array
    return checked


def checked_backend(backend: Any, compile_kwargs: Any) -> tuple[str, dict[str, Any]]:
    """Choose the backend from the arguments; "auto" stays only where JAX is installed."""
    one_of("backend", backend, ("auto", "jax", "numba"))
    if compile_kwargs is not None and not isinstance(compile_kwargs, Mapping):
        raise TypeError(
            "compile_kwargs must be a dict of arguments for pm.compile, got "
            f"{compile_kwargs!r}; pass backend='jax' or backend='numba' to choose a backend."
        )
    kwargs = dict(compile_kwargs or {})
    for key in kwargs:
        if key not in _FOR_COMPILE:
            raise TypeError(
                f"compile_kwargs has {key!r}, which is no argument of pm.compile that can be set "
                f"here. Choose from {', '.join(_FOR_COMPILE)}."
            )
    if kwargs.get("mode") is None:
        kwargs.pop("mode", None)
    else:
        linker = _linker(kwargs["mode"])
        kinds: dict[str, type] = {"jax": JAXLinker, "numba": NumbaLinker}
        of_mode = next((name for name, kind in kinds.items() if isinstance(linker, kind)), None)
        if of_mode is None or backend not in ("auto", of_mode):
            raise ValueError(
                f"compile_kwargs['mode']={kwargs['mode']!r} must be a JAX or numba mode that "
                f"agrees with backend={backend!r}. Pass backend='jax' or backend='numba' alone."
            )
        backend = of_mode
    if find_spec("jax") is None:
        if backend == "jax":
            raise ImportError(
                "backend='jax' needs JAX: pip install 'pymc-sgmcmc[jax]', or backend='numba'."
            )
        backend = "numba"
    return backend, kwargs


def checked_rng(rng: Any) -> np.random.Generator:
    """Return the generator that a seed stands for; PyMC passes it."""
    try:
        return get_random_generator(rng)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "rng must be None, an integer of at least 0, a list of them or a "
            f"numpy.random.Generator, got {rng!r:.80}. To seed a run pass random_seed= to "
            "pm.sample."
        ) from error


def _linker(mode: Any) -> Any:
    try:
        return get_mode(mode).linker
    except (AttributeError, ValueError):
        return None  # no mode of PyTensor


def _named(argument: str, mapping: Mapping[Any, Any], names: list[str]) -> dict[str, Any]:
    """Return a dict by the names of variables, all of which the step samples."""
    named = by_name(argument, mapping)
    for name in named:
        if name not in names:
            raise ValueError(
                f"{argument} names '{name}', which this step does not sample. Name only what it "
                f"samples: {', '.join(names)}."
            )
    return named
