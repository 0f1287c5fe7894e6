"""Steps that are compiled once for all tests of this folder."""

import pytest

from helpers.steps import location, start, step_for


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


@pytest.fixture(params=["jax", pytest.param("numba")])
def compiled_step(request):
    return request.getfixturevalue(f"{request.param}_step")
