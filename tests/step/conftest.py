"""Steps that are compiled once for all tests of this folder."""

from functools import cache

import pytest

from helpers.steps import SAMPLERS, location, start, step_for, twin


@pytest.fixture(scope="session")
def numba_step():
    """The only step of this folder, outside the slow tests, that numba compiles."""
    step = step_for("CoRVSGLD", location(), backend="numba")
    step.step(start(step))
    return step


@pytest.fixture(scope="session")
def jax_step():
    step = step_for("CoRVSGLD", location())
    step.step(start(step))
    return step


@pytest.fixture(scope="session")
def new_step():
    """Return new steps for JAX, of which each method and batch scheme is compiled once."""
    compiled = cache(lambda name, batch: step_for(name, location(), batch=batch))

    def new(name, batch="shuffled", **options):
        step = compiled(name, batch)
        if step._engine is None:
            step.step(start(step))
        own = {k: v for k, v in SAMPLERS[name][1].items() if k not in options}
        return twin(step, batch=batch, **own, **options)

    return new


@pytest.fixture(params=["jax", pytest.param("numba")])
def compiled_step(request):
    return request.getfixturevalue(f"{request.param}_step")
