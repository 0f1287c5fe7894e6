"""Models of PyMC's example gallery, each on made data of its notebook's shape: ``EXAMPLES``."""

# In the order of the table
from . import causal, lectures, groups, latent, processes, regression, series, survival  # noqa: F401, I001
from .registry import EXAMPLES

__all__ = ["EXAMPLES"]
