"""The entropic mirror map against PyMC's simplex transform."""

import numpy as np
import pymc.distributions.transforms as pymc_transforms
import pytensor
import pytensor.tensor as pt
import pytest

from helpers.modes import PLAIN, REWRITTEN
from pymc_sgmcmc import transforms as tr


class TestEntropicMirror:
    mirror, theirs = tr.EntropicMirror(), pymc_transforms.simplex

    @pytest.mark.parametrize("mode", [REWRITTEN, PLAIN], ids=["rewritten", "unrewritten"])
    @pytest.mark.parametrize("shape", [(1,), (2,), (9,), (4, 3, 2)])
    def test_against_pymc(self, mode, shape):
        """PyMC's coordinates v have y_l = v_l + sum(v): its determinant is K times ours."""
        v = pt.tensor("v", shape=(None,) * len(shape), dtype="float64")
        y = v + v.sum(-1, keepdims=True)
        simplex = self.mirror.backward(y)
        function = pytensor.function(
            [v],
            [
                simplex - self.theirs.backward(v),
                self.mirror.log_jac_det(y) + np.log(shape[-1] + 1) - self.theirs.log_jac_det(v),
                self.mirror.forward(simplex) - y,
            ],
            mode=mode,
        )
        values = np.random.default_rng(1).normal(scale=3, size=shape)
        simplex_error, jacobian_error, round_trip_error = function(values)
        assert simplex_error.shape == (*shape[:-1], shape[-1] + 1)
        assert jacobian_error.shape == shape[:-1]
        np.testing.assert_allclose(simplex_error, 0, atol=1e-15)
        np.testing.assert_allclose(jacobian_error, 0, atol=1e-11)
        np.testing.assert_allclose(round_trip_error, 0, atol=1e-12)

    @pytest.mark.parametrize("mode", [REWRITTEN, PLAIN], ids=["rewritten", "unrewritten"])
    def test_finite_everywhere_and_determinant(self, mode):
        y = pt.vector("y", dtype="float64", shape=(3,))
        x = self.mirror.backward(y)
        jacobian = pt.stack([pt.grad(x[k], y) for k in range(4)])
        log_det = self.mirror.log_jac_det(y)
        logp = pt.log(x).sum() + log_det
        outputs = [x, jacobian, log_det, pt.grad(logp, y), self.mirror.forward(x)]
        function = pytensor.function([y], outputs, mode=mode)
        for values in ([0.3, -1, 2.0], [800, -800, 0.0], [-3e3, -2e3, -1e3], [1e5, 1e5, 1e5]):
            x_, jacobian_, log_det_, gradient, inverse = function(np.array(values))
            assert (x_ > 0).all()
            assert np.isclose(x_.sum(), 1)
            for output in (jacobian_, log_det_, gradient, inverse):
                assert np.isfinite(output).all()
            assert np.linalg.norm(jacobian_, 2) <= tr.EntropicMirror.lipschitz_constant
        _, jacobian_, log_det_, *_ = function(np.array([0.3, -1, 2]))
        assert np.isclose(np.linalg.slogdet(jacobian_[:3])[1], log_det_, rtol=1e-13)
