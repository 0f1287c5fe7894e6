"""Moments of laws that are known at points, as on a grid."""

import numpy as np


def weights(log_density):
    """Return weights of points that sum to one, of a density known up to a factor."""
    weight = np.exp(log_density - np.max(log_density))
    return weight / weight.sum()


def moments(weight, mean, variance=0.0):
    """Return mean and sd of a mixture along the first axis: of points that have no variance."""
    centre = np.tensordot(weight, mean, 1)
    return centre, np.sqrt(np.tensordot(weight, (mean - centre) ** 2 + variance, 1))
