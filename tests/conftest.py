"""What every test file shares."""

import os
import sys

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# Programs, not modules: they import one another from their folder
collect_ignore = ["benchmarks"]

# An assert of a helper shows its values, as one of a test does
pytest.register_assert_rewrite("helpers")

# Test processes share the cores: BLAS threads would wait for each other. NumPy reads it on import
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Lines of code that PyTensor notes for each variable take time. It reads this on import
os.environ.setdefault("PYTENSOR_FLAGS", "traceback__limit=0")

# No display is needed, here and in the processes that tests start. Matplotlib reads it on import.
os.environ["MPLBACKEND"] = "Agg"


@pytest.fixture(params=["numba", "jax"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each of PyTensor's two backends that the package runs on."""
    # Found, not imported: in a process where JAX has run, sampling on several cores is refused.
    if request.param == "jax" and find_spec("jax") is None:
        pytest.skip("needs the extra `jax`")
    return request.param


@pytest.fixture(autouse=True)
def jax_in_double_precision() -> Iterator[None]:
    """Undo what a test in single precision leaves behind where it is a process's first with JAX.

    PyTensor sets JAX's precision once, by its floatX when it first imports JAX.
    """
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)
