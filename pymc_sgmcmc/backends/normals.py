"""Millions of normals, of float32's precision: Box and Muller's method in vector instructions.

NumPy's ziggurat makes one number at a time; here are loops without branches, which the
compiler turns into vector code. Logarithm, sine and cosine are polynomials, right to
float32's last digits; the random bits stay those of NumPy's generator.

Box, Muller (1958). A note on the generation of random normal deviates. Annals of
Mathematical Statistics 29, 610-611. https://doi.org/10.1214/aoms/1177706645
"""

import math

from contextlib import suppress

import numba
import numpy as np

# Numbers worked on at once: all temporary arrays stay in the processor's cache
_CHUNK = 2**15
_STRIP = 2**11

_F, _I = np.float32, np.int32
_ONE, _HALF = _F(1), _F(0.5)
_LOG_2 = _F(math.log(2))

# A float32 in [1/sqrt(2), sqrt(2)) counts up from the bits of its lower end
_SQRT_HALF_BITS, _MANTISSA, _MANTISSA_BITS = _I(0x3F3504F3), _I(0x7FFFFF), _I(23)

# log(1 + x) = x P(x), the polynomial of least relative error (3e-8) there
_LOG = tuple(
    _F(c)
    for c in (
        *(0.99999997, -0.49999988, 0.33334186, -0.25002074, 0.19956833),
        *(-0.16562403, 0.14952284, -0.14366783, 0.08722233),
    )
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = _LOG

# 32 random bits as an angle in an eighth of the circle to both sides, and its Taylor series
_ANGLE = _F(math.pi / 4 / 2**31)
_S3, _S5, _S7 = (_F((-1) ** (k // 2) / math.factorial(k)) for k in (3, 5, 7))
_C2, _C4, _C6, _C8 = (_F((-1) ** (k // 2) / math.factorial(k)) for k in (2, 4, 6, 8))


def fill_normal(rng: np.random.Generator, out: np.ndarray) -> None:
    """Fill a vector of floats with independent standard normal numbers of float32's precision.

    The radius takes 32 random bits, so that no tail is cut before 6.7 standard deviations. A
    sampler's noise needs no more digits than that, whatever the precision of the position.
    """
    for start in range(0, out.size, _CHUNK):
        part = out[start : start + _CHUNK]
        bits = rng.bit_generator.random_raw((part.size + 1) // 2).view(np.uint32)
        if part.size == bits.size and out.dtype == np.float32:
            _box_muller(bits, part)
        else:
            pairs = np.empty(bits.size, dtype=np.float32)
            _box_muller(bits, pairs)
            part[:] = pairs[: part.size]


@numba.njit(error_model="numpy")
def _box_muller(bits: np.ndarray, out: np.ndarray) -> None:
    """Turn pairs of 32 random bits into pairs of normals; both arrays have their halves."""
    half = bits.size // 2
    radius = np.empty(_STRIP, np.float32)
    u = radius.view(np.int32)
    mantissa = np.empty(_STRIP, np.int32)
    x_plus_1 = mantissa.view(np.float32)
    for start in range(0, half, _STRIP):
        stop = min(start + _STRIP, half)
        for_radius, for_angle = bits[start:stop], bits[half + start : half + stop].view(np.int32)
        one, other = out[start:stop], out[half + start : half + stop]
        for i in range(stop - start):
            radius[i] = (_F(for_radius[i]) + _HALF) * _F(2.0**-32)
        # u = 2^e (1 + x)
        for i in range(stop - start):
            mantissa[i] = ((u[i] - _SQRT_HALF_BITS) & _MANTISSA) + _SQRT_HALF_BITS
        for i in range(stop - start):
            e = _F((u[i] - _SQRT_HALF_BITS) >> _MANTISSA_BITS)
            x = x_plus_1[i] - _ONE
            p = _L4 + x * (_L5 + x * (_L6 + x * (_L7 + x * _L8)))
            p = _L0 + x * (_L1 + x * (_L2 + x * (_L3 + x * p)))
            radius[i] = np.sqrt(_F(-2) * (x * p + e * _LOG_2))
        # The angle's three lowest bits, which do not affect it, choose the eighth of the circle
        for i in range(stop - start):
            b = for_angle[i]
            t = _F(b) * _ANGLE
            q = t * t
            sine = t * (_ONE + q * (_S3 + q * (_S5 + q * _S7)))
            cosine = _ONE + q * (_C2 + q * (_C4 + q * (_C6 + q * _C8)))
            sine *= radius[i] * _F(_ONE - _F((b & _I(1)) << _I(1)))
            cosine *= radius[i] * _F(_ONE - _F(b & _I(2)))
            swapped = (b & _I(4)) != 0
            one[i] = cosine if swapped else sine
            other[i] = sine if swapped else cosine


# Where there is no folder to keep it, or nothing is compiled
with suppress(AttributeError, RuntimeError):
    _box_muller.enable_caching()
