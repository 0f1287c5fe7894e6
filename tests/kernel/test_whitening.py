"""Whitened coordinates."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

from helpers.modes import REWRITTEN
from helpers.sampling import run
from pymc_sgmcmc.kernel.whitening import Dense, Diagonal, Shear, Sheared, Turned
from pymc_sgmcmc.tuning.directions import Turn

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
    found = pytensor.function([*symbols, *whitening.symbols], graphs, mode=REWRITTEN)(
        *psi, *whitening.arrays
    )
    pulled = whitening.pull_back(phi, whitening.arrays)
    for x, want, g, s, of in zip(found, phi, pulled, scale, phi, strict=True):
        np.testing.assert_allclose(x, want, rtol=1e-14)
        np.testing.assert_array_equal(g, (s * of).reshape(g.shape))


def mapped(whitening, psi):
    """Return φ by NumPy and by the compiled graph."""
    symbols = [x.type() for x in map(pytensor.shared, psi)]
    graphs = whitening.to_phi(symbols, whitening.symbols)
    compiled = pytensor.function([*symbols, *whitening.symbols], graphs, mode=REWRITTEN)
    return whitening.to_phi(psi, whitening.arrays), compiled(*psi, *whitening.arrays)


def assert_stands_for(whitening, dense, psi, close):
    """Compare with a matrix, return φ."""
    joined = np.concatenate([x.reshape(-1) for x in psi]).astype(float)
    phi, compiled = mapped(whitening, psi)
    for x, y, want in zip(phi, compiled, dense.to_phi([joined], dense.arrays), strict=True):
        assert x.shape == y.shape == want.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, want, **close)
        np.testing.assert_allclose(y, want, **close)
    for x, want in zip(whitening.to_psi(phi, whitening.arrays), psi, strict=True):
        np.testing.assert_allclose(x, want, **close)
    pulled = np.concatenate([x.reshape(-1) for x in whitening.pull_back(phi, whitening.arrays)])
    [want] = dense.pull_back([np.asarray(x, dtype=float) for x in phi], dense.arrays)
    np.testing.assert_allclose(pulled, want, **close)
    return phi


@pytest.mark.parametrize("dtypes", [["float64"] * 3, ["float64", "float32", "float32"]])
def test_a_turn_is_the_matrix_that_it_stands_for(dtypes):
    sizes, shapes = [1, 3, 6], [(), (3,), (2, 3)]
    # The second variable is left as it is
    direction = RNG.normal(size=(10, 2))
    direction[1:4] = 0
    turn = Turn.to(np.linalg.qr(direction)[0], np.array([5.0, 0.3]), sizes, np.ones(10))
    # Noisier coordinates are shortened, turned or not
    turn = replace(turn, lengths=turn.lengths * RNG.uniform(0.5, 1, size=10))
    centre = [RNG.normal(size=s).astype(d) for s, d in zip(shapes, dtypes, strict=True)]
    scale = [RNG.uniform(1, 2, size=x.shape).astype(x.dtype) for x in centre]
    lengths = [x.reshape(s) for x, s in zip(np.split(turn.lengths, [1, 4]), shapes, strict=True)]
    whitening = Turned(centre, scale, turn.parts(sizes), turn.middle, lengths)
    flat = np.concatenate([x.reshape(-1) for x in scale]).astype(float)
    matrix = flat[:, None] * turn(np.eye(10)).T
    dense = Dense([x.astype(float) for x in centre], matrix)
    psi = [RNG.normal(size=n).astype(d) for n, d in zip(sizes, dtypes, strict=True)]
    psi[0] = psi[0].reshape(())
    close = {"rtol": 1e-5, "atol": 1e-5} if "float32" in dtypes else {"rtol": 1e-12, "atol": 1e-12}
    assert_stands_for(whitening, dense, psi, close)
    diagonal = [np.asarray(x).reshape(-1) for x in whitening.diagonal(psi, whitening.arrays)]
    np.testing.assert_allclose(np.concatenate(diagonal), np.diag(matrix), **close)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_shear_is_the_matrix_that_it_stands_for(dtype, turned):
    """Of a vector, two rows and two columns of five elements: blocks of five rows each."""
    shapes = [(), (5,), (2, 5), (5, 2)]
    families = [((1, -1, 0), (2, -1, 2), (3, -2, 2))]
    below = [RNG.normal(size=(10, 5))]
    index = np.stack(
        [np.arange(1, 6), *np.arange(6, 16).reshape(2, 5), *np.arange(16, 26).reshape(5, 2).T]
    )
    unit = np.eye(26)
    for k, (i, j) in enumerate(zip(*np.tril_indices(5, -1), strict=True)):
        unit[index[i], index[j]] = below[0][k]
    centre = [RNG.normal(size=s).astype(dtype) for s in shapes]
    scale = [RNG.uniform(1, 2, size=s).astype(dtype) for s in shapes]
    inner = Diagonal(centre, scale)
    matrix = unit * np.concatenate([s.reshape(-1) for s in scale]).astype(float)
    if turned:
        sizes = [1, 5, 10, 10]
        turn = Turn.to(
            np.linalg.qr(RNG.normal(size=(26, 2)))[0], np.array([5.0, 0.3]), sizes, np.ones(26)
        )
        parts = np.split(turn.lengths, np.cumsum(sizes)[:-1])
        lengths = [x.reshape(s) for x, s in zip(parts, shapes, strict=True)]
        inner = Turned(centre, scale, turn.parts(sizes), turn.middle, lengths)
        matrix = matrix @ turn(np.eye(26)).T
    whitening = Sheared(inner, Shear(families), below)
    dense = Dense([x.astype(float) for x in centre], matrix)
    psi = [RNG.normal(size=s).astype(dtype).reshape(-1 if s else ()) for s in shapes]
    close = {"rtol": 2e-4, "atol": 2e-4} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-10}
    phi = assert_stands_for(whitening, dense, psi, close)
    assert all(x.dtype == dtype for x in phi)
    assert whitening.kind != inner.kind


def test_turns_of_one_kind_share_a_compiled_function():
    shapes = [(), (5,)]
    centre, scale = [np.zeros(s) for s in shapes], [np.ones(s) for s in shapes]

    def of(directions):
        unit = np.linalg.qr(RNG.normal(size=(6, directions)))[0]
        turn = Turn.to(unit, np.full(directions, 2.0), [1, 5], np.ones(6))
        lengths = [turn.lengths[0], turn.lengths[1:]]
        return Turned(centre, scale, turn.parts([1, 5]), turn.middle, lengths)

    assert of(1).kind == of(3).kind
    assert of(1).kind != of(5).kind != Diagonal(centre, scale).kind


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
            found = run(step, 10, 1, tune=0, backend="jax")
        return found.posterior["x"].values.reshape(10, 6)

    np.testing.assert_allclose(draws((2, 3)), draws((6,)), rtol=1e-12)
