"""Models with known posteriors: ``POSTERIORDB``, ``LARGE``, ``SMALL``, and ``reference(name)``.

Each of the three is a dict from a model's name to a function that returns the ``pm.Model``.
"""

from .large import LARGE
from .posteriordb import POSTERIORDB
from .references import Reference, reference, sampling
from .small import SMALL

__all__ = ["LARGE", "POSTERIORDB", "SMALL", "Reference", "reference", "sampling"]
