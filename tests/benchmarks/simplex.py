"""The sparse simplex of Hsieh et al. (2018), figure 1(a), with nothing set, against its exact law.

``python tests/benchmarks/simplex.py`` prints a Markdown table: the largest total variation over the
eleven marginals, in tenths of the exact law, the least and the largest ratio of an sd to the exact
one, the relative error that an sd of as many independent draws would have, and seconds from the
call of ``pm.sample`` to its result. Of ``Beta(0.1, 10020.9)`` that error is large: the law has an
excess kurtosis of 60.
"""

from __future__ import annotations

import argparse
import logging
import time

import numpy as np
import pymc as pm

from gallery.sparse import PAPERS, sparse_counts
from scipy import stats
from table import digits

import pymc_sgmcmc as sg

METHODS = {"SMLD": sg.SMLD, "CoRVSGLD": sg.CoRVSGLD, "MSGNHT": sg.MSGNHT}


def main() -> None:
    """Sample with each method and seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--draws", type=int, default=10_000, help="of each of four chains")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    law = stats.beta(PAPERS + 0.1, (PAPERS + 0.1).sum() - PAPERS - 0.1)
    # The variance of a sample variance of n draws is (kurtosis - 1) / n of its square
    excess = law.stats("k").max()
    error = np.sqrt((excess + 2) / (4 * 4 * arguments.draws))
    columns = "method", "seed", "TV", "least sd ratio", "largest", "error of an sd", "seconds"
    for cells in (columns, ["---"] * len(columns)):
        print("| " + " | ".join(cells) + " |")
    for method in arguments.methods:
        for seed in arguments.seeds:
            start = time.perf_counter()
            with sparse_counts():
                dt = pm.sample(
                    draws=arguments.draws, chains=4, step=METHODS[method](), random_seed=seed,
                    progressbar=False, compute_convergence_checks=False,
                )  # fmt: skip
            seconds = time.perf_counter() - start
            draws = dt.posterior["p"].values.reshape(-1, len(PAPERS))
            tenths = [(draws < law.ppf(t)).mean(axis=0) for t in np.arange(11) / 10]
            tenths[-1] = np.ones(len(PAPERS))
            distance = np.abs(np.diff(tenths, axis=0) - 0.1).sum(axis=0) / 2
            ratio = draws.std(axis=0) / law.std()
            found = distance.max(), ratio.min(), ratio.max(), error, seconds
            print("| " + " | ".join([method, str(seed), *map(digits, map(float, found))]) + " |")


if __name__ == "__main__":
    main()
