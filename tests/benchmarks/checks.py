"""What PyMC's checks after sampling take with many parameters: ArviZ's loop, and all at once.

Run with ``python tests/benchmarks/checks.py``. Columns: processor milliseconds a parameter, of two
chains' draws, by ArviZ's own functions and by those that step methods put in their place, and the
largest relative difference.
"""

from __future__ import annotations

import argparse
import time

from typing import Any

import numpy as np

from arviz_stats.base.array import array_stats

from pymc_sgmcmc.convergence.arviz_stats import array_stats as together

# ArviZ's own functions are timed on fewer
FEW = 500


def timed(stats: Any, name: str, draws: np.ndarray, options: dict[str, str]) -> tuple[Any, float]:
    """Return what a statistic is, and its milliseconds a parameter."""
    start = time.process_time()
    found = getattr(stats, name)(draws, **options)
    return found, 1e3 * (time.process_time() - start) / len(draws)


def main() -> None:
    """Print a line for each statistic."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=1_000)
    arguments = parser.parse_args()
    x = np.random.default_rng(0).normal(size=(arguments.parameters, 2, arguments.draws))
    print("statistic  ArviZ  at once  largest difference")
    for name, options in (
        ("ess", {}),
        ("rhat", {}),
        ("mcse", {"method": "mean"}),
        ("mcse", {"method": "sd"}),
    ):
        timed(together, name, x[:FEW], options)
        expected, alone = timed(array_stats, name, x[:FEW], options)
        found, at_once = timed(together, name, x, options)
        off = np.abs(found[:FEW] / expected - 1).max()
        print(
            " ".join([name, *options.values()]), f"{alone:.3f}  {at_once:.3f}  {off:.1g}", sep="  "
        )


if __name__ == "__main__":
    main()
