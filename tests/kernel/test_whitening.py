"""Whitened coordinates."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.kernel.whitening import Diagonal

RNG = np.random.default_rng(0)


def test_of_a_diagonal_matrices_are_vectors_and_come_back():
    centre = [RNG.normal(size=shape) for shape in [(), (3,), (2, 3)]]
    scale = [RNG.uniform(1, 2, size=x.shape) for x in centre]
    whitening = Diagonal(centre, scale)
    phi = [RNG.normal(size=x.shape) for x in centre]
    psi = whitening.to_psi(phi, whitening.arrays)
    assert [x.shape for x in psi] == [(), (3,), (6,)]
    for back, x in zip(whitening.to_phi(psi, whitening.arrays), phi, strict=True):
        np.testing.assert_allclose(back, x, rtol=1e-14)
    symbols = [x.type() for x in map(pytensor.shared, psi)]
    graphs = whitening.to_phi(symbols, whitening.symbols)
    assert [x.type.shape for x in graphs] == [(), (3,), (2, 3)]
    found = pytensor.function([*symbols, *whitening.symbols], graphs)(*psi, *whitening.arrays)
    pulled = whitening.pull_back(phi, whitening.arrays)
    for x, want, g, s, of in zip(found, phi, pulled, scale, phi, strict=True):
        np.testing.assert_allclose(x, want, rtol=1e-14)
        np.testing.assert_array_equal(g, (s * of).reshape(g.shape))


def test_a_matrix_is_sampled_as_its_elements_in_a_row_are():
    pytest.importorskip("jax")
    y = RNG.normal(size=(40, 6))

    def draws(shape):
        with pm.Model():
            rows = pm.Minibatch(y, batch_size=10)
            x = pm.Normal("x", 0, 1, shape=shape)
            pm.Normal("y", x.reshape((6,)), 1, observed=rows, total_size=(40, None))
            scale = {"x": np.arange(1.0, 7.0).reshape(shape) / 20}
            step = sg.MSGNHT(step_size=0.1, scale=scale, thin=5, gradient="plain", batches=1)
            found = pm.sample(
                draws=10, tune=0, chains=1, step=step, backend="jax", random_seed=1,
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
        return found.posterior["x"].values.reshape(10, 6)

    np.testing.assert_allclose(draws((2, 3)), draws((6,)), rtol=1e-12)
