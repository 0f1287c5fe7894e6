"""Tests that run on both backends, of which numba's compilation takes long."""

import pytest

BOTH = pytest.mark.parametrize("backend", ["jax", pytest.param("numba", marks=pytest.mark.slow)])
