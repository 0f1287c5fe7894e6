"""Models of PyMC's example gallery, each on made data of its notebook's shape: ``EXAMPLES``."""

from . import causal, groups, processes, regression, series, survival  # noqa: F401
from .registry import EXAMPLES

__all__ = ["EXAMPLES"]
