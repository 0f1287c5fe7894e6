"""Models with known posteriors: ``POSTERIORDB``, ``SUITE``, ``LARGE``, ``SMALL``,
``SPARSE``, ``HIERARCHIES``, ``WRITINGS``, ``MANY``, ``MIXED``, ``GYM``.

Each is a dict from a model's name to a function that returns the ``pm.Model``; what is known is
``reference(name)``, and of sparse ones also ``DECILES[name]()``. Those of ``MIXED`` also make their
list of steps.
"""

from . import stan_processes, stan_regressions  # noqa: F401  They fill SUITE
from .hierarchies import HIERARCHIES
from .inference_gym import GYM
from .large import LARGE
from .many import MANY
from .mixed import MIXED
from .posteriordb import POSTERIORDB, SUITE
from .references import Reference, reference, sampling
from .small import SMALL
from .sparse import DECILES, SPARSE
from .writings import PAIRS, WRITINGS

__all__ = [
    "DECILES",
    "GYM",
    "HIERARCHIES",
    "LARGE",
    "MANY",
    "MIXED",
    "PAIRS",
    "POSTERIORDB",
    "SMALL",
    "SPARSE",
    "SUITE",
    "WRITINGS",
    "Reference",
    "reference",
    "sampling",
]
