"""The noise of one batch's gradient, plain and with control variates, in the large models.

``python tests/benchmarks/noise.py`` prints the largest variance in any direction, in units of
posterior sds, for an anchor at the posterior mean and places one sd away from it.
"""

from __future__ import annotations

import argparse

import gallery

import pymc_sgmcmc as sg


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(gallery.LARGE))
    for name in parser.parse_args().models:
        mean = {variable: known.mean for variable, known in gallery.reference(name).items()}
        noise = sg.diagnostics.gradient_noise(gallery.LARGE[name](), mean, random_seed=1)
        found = noise["largest_variance"].to_series().to_dict()
        print(name, {estimator: round(float(value), 3) for estimator, value in found.items()})


if __name__ == "__main__":
    main()
