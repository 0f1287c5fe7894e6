"""Five models, each written for a dim and for ``pm.Minibatch``: are posteriors and LOO the same?

Run ``python tests/benchmarks/unchanged.py``, or with names of models as arguments. Two thousand
rows in batches of a hundred, two chains of a thousand draws, everything tuned. For each model:

- ``bits``: whether all draws of both writings are the same numbers.
- ``mean``, ``sd``: the farthest mean and sd of any element from NUTS on the unchanged model (two
  chains of a thousand draws), in posterior sds and as a share; ``error``, the largest standard
  error of such a difference of means, from the effective sample sizes of both.
- ``LOO``: of the model written for the dim, of the full-data twin of the other
  (``sg.full_data``), and of a model that no step of this package has seen, from the same draws.
"""

import logging
import sys
import warnings

from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

sys.path.insert(0, str(Path(__file__).parents[1]))

import pymc_sgmcmc as sg

from helpers.five_models import FIVE, both_ways, unchanged

QUIET = {"cores": 1, "chains": 2, "random_seed": 1, "progressbar": False}


def loo(model, posterior):
    dt = az.convert_to_datatree(posterior)
    with model:
        pm.compute_log_likelihood(dt, progressbar=False)
    return az.loo(dt).elpd


def main() -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"{'':<20}{'bits':>6}{'mean':>8}{'error':>8}{'sd':>8}  LOO")
    for build in FIVE:
        if len(sys.argv) > 1 and build.__name__ not in sys.argv[1:]:
            continue
        (of_dim, options), (batched, _) = both_ways(build)
        found = []
        for model, asked in ((of_dim, options), (batched, {})):
            with model:
                found.append(pm.sample(step=sg.CoRVSGLD(**asked), **QUIET))
        one, other = (dt.posterior.to_dataset() for dt in found)
        with of_dim:
            nuts = pm.sample(nuts_sampler="pymc", **QUIET).posterior.to_dataset()
        sd = nuts.std(["chain", "draw"])
        mean = abs(one.mean(["chain", "draw"]) - nuts.mean(["chain", "draw"])) / sd
        ess = [az.ess(x) for x in (one, nuts)]
        error = np.sqrt(1 / ess[0] + 1 / ess[1])
        wide = abs(one.std(["chain", "draw"]) / sd - 1)
        largest = (max(float(x.max()) for x in ds.data_vars.values()) for ds in (mean, error, wide))
        elpds = [loo(m, one) for m in (of_dim, sg.full_data(batched), unchanged(build))]
        print(
            f"{build.__name__:<20}{one.equals(other)!s:>6}",
            *(f"{x:7.3f}" for x in largest),
            " ", *(f"{x:.6f}" for x in elpds),
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
