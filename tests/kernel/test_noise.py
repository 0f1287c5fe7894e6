"""The random numbers have the law that they should have."""

import numpy as np
import pytensor
import pytest

from scipy import stats

from pymc_sgmcmc.kernel import noise as noise_module
from pymc_sgmcmc.kernel.noise import Noise


@pytest.fixture(params=["numpy", "device"])
def maker(request, monkeypatch):
    """Where the numbers are made; the device's code runs on processors, too."""
    if request.param == "device":
        pytest.importorskip("jax")
        monkeypatch.setattr(noise_module, "on_processor", lambda backend: False)
    return request.param


# NumPy's large vectors are made otherwise, the device's are not. JAX compiles for each size
SIZES = pytest.mark.parametrize(
    ("size", "maker"), [(1000, "numpy"), (99_999, "numpy"), (2500, "device")], indirect=["maker"]
)


def draws(size, dtype, ask, updates=1, seed=1):
    """Numbers that a noise source draws for what ``ask`` asks of it, flat."""
    noise = Noise([(size,)], [dtype])
    [graph] = ask(noise)
    inputs = [flat for _, flat in noise.flat_requests()]
    function = pytensor.function(inputs, graph, mode="FAST_COMPILE")
    generator = np.random.Generator(np.random.SFC64(seed))
    arrays = [np.asarray(a) for a in noise.draw(generator, updates)]
    assert all(a.dtype == dtype for a in arrays)
    return np.concatenate([function(*rows) for rows in zip(*(a[0] for a in arrays), strict=True)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@SIZES
def test_normal(dtype, size, maker):
    x = draws(size, dtype, Noise.normal, updates=-(-200_000 // size))
    assert x.dtype == dtype
    assert stats.kstest(x, "norm").pvalue > 1e-3
    error = 1 / np.sqrt(x.size)
    assert abs(x.mean()) < 4 * error
    assert abs(x.var() - 1) < 4 * np.sqrt(2) * error
    assert abs(np.mean(x**4) - 3) < 4 * np.sqrt(96) * error
    # The pairs of a large vector share a radius: neither they nor neighbours are correlated
    half = min(size, 2**15) // 2
    for lag in (1, half):
        assert abs(np.mean(x[:-lag] * x[lag:])) < 4 * error
        assert abs(np.mean(x[:-lag] ** 2 * x[lag:] ** 2) - 1) < 4 * np.sqrt(8) * error


def test_uniform_and_exponential(maker):
    assert stats.kstest(draws(50_000, "float64", Noise.uniform), "uniform").pvalue > 1e-3
    assert stats.kstest(draws(50_000, "float64", Noise.exponential), "expon").pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.9, 2.0])
def test_stable(alpha, dtype, maker):
    x = draws(2500, dtype, lambda noise: noise.stable(alpha), updates=2)
    law = stats.norm(scale=np.sqrt(2)) if alpha == 2 else stats.levy_stable(alpha, 0)
    assert np.all(np.isfinite(x))
    levels = np.array([0.02, 0.25, 0.5, 0.75, 0.98])
    shares = np.mean(x[:, None] < law.ppf(levels), axis=0)
    assert np.all(np.abs(shares - levels) < 4 * np.sqrt(levels * (1 - levels) / x.size))


def test_blocks_share_one_stream_and_every_request_is_fresh(maker):
    noise = Noise([(3,), (2, 2)], ["float64", "float64"])
    first, second = noise.normal(), noise.normal()
    assert [part.type.shape for part in first] == [(3,), (2, 2)]
    arrays = noise.draw(np.random.default_rng(0), 4)
    assert [a.shape for a in arrays] == [(1, 4, 7), (1, 4, 7)]
    assert len(np.unique(np.concatenate(arrays))) == 56
    assert len(second) == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@SIZES
def test_a_draw_gets_the_same_numbers_alone_and_with_others(dtype, size, maker):
    noise = Noise([(size,)], [dtype])
    noise.stable(1.5)
    noise.normal()
    rng = np.random.default_rng(0)
    together = [np.array(a) for a in noise.draw(rng, 2, 3)]
    again = np.random.default_rng(0)
    for k in range(3):
        for many, one in zip(together, noise.draw(again, 2), strict=True):
            np.testing.assert_array_equal(many[k], one[0])
    assert again.bit_generator.state == rng.bit_generator.state


def test_buffers_begin_where_jax_reads_them_without_a_copy():
    noise = Noise([(3, 5), ()], ["float32", "float32"])
    noise.normal(), noise.uniform()
    for draws in (1, 3):
        for buffer in noise.draw(np.random.default_rng(0), 2, draws):
            assert buffer.shape == (draws, 2, 16)
            assert buffer.ctypes.data % 64 == 0
