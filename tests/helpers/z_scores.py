"""Comparisons with exact values, in standard errors that are computed."""

import numpy as np

# Standard errors that an estimate may be off
STANDARD_ERRORS = 4.0


def mean_and_error(samples):
    """Return the mean of independent samples along the first axis, and its standard error."""
    samples = np.asarray(samples)
    return samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(len(samples))


def z_score(samples, expected):
    """Return the deviation of a mean of independent samples, in standard errors."""
    mean, error = mean_and_error(samples)
    return (mean - expected) / error


def means_of_parts(chains, parts=20):
    """Return the means of consecutive parts of each chain: nearly independent samples.

    Parameters
    ----------
    chains : ndarray, shape (chains, draws, ...)
        Draws that remember the ones before them.
    parts : int
        Parts of each chain; draws that are left at its end are not counted.

    Returns
    -------
    ndarray, shape (chains * parts, ...)
    """
    count, draws, *shape = chains.shape
    cut = chains[:, : draws // parts * parts].reshape(count * parts, -1, *shape)
    return cut.mean(axis=1)


def mean_and_error_of_chain(series):
    """Return the mean of one chain's series, and its standard error."""
    return mean_and_error(means_of_parts(series[None]))


def assert_right(posterior, exact, parts=20, slack=0.1):
    """Compare with the product's promise: 0.1 sds and a tenth, and what draws leave unknown."""
    for name, (mean, sd) in exact.items():
        draws = (posterior[name].values - mean) / sd
        for power, expected in ((1, 0.0), (2, 1.0)):
            found, error = mean_and_error(means_of_parts(draws**power, parts))
            assert np.all(abs(found - expected) < power * slack + STANDARD_ERRORS * error), (
                name, power, found, error,
            )  # fmt: skip
            # Of 2,000 draws, at the least 300 are effective
            assert np.all(error < 1.5**power * np.sqrt(power / 300)), (name, power, error)
