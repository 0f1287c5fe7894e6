"""Models that tests of several diagnostics share."""

import pymc as pm
import pytest

from helpers.results import SDS


@pytest.fixture(scope="session")
def ten_normals():
    """Ten independent normal variables of very different scales."""
    with pm.Model() as model:
        pm.Normal("x", 3.0, SDS, shape=10)
    return model
