"""Any string that PyMC takes as the name of a variable, a dim or data works."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.model.coordinates import coordinates_for
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.testing import UNTUNED

# Terms of formulas, types and formats of NumPy, what formatting and code generation could read
NAMES = ["1|g", "f8, f8", "float64", "floatX", "i", "a b", "σ²", "x[0]", "a:b", "..", "", "%s"]
NAMES += ["{x}", "'q'", '"', "\\", "a\nb", "[red]", "batch_0_0", "data_0", "step_size", "lambda"]
NAMES += ["rows of y", " ", "None"]

N = 24


def test_symbols_of_all_kinds():
    """Of scales, weights between two writings, totals of simplexes, and coordinates."""
    with pm.Model() as model:
        for name in NAMES[:5]:
            pm.Normal(f"{name}_effect", 0, pm.HalfNormal(name), shape=3)
            pm.Dirichlet(f"{name}_share", np.ones(3))
    point = initial_point(model)
    coordinates, *_ = coordinates_for(
        model, model.value_vars, "lipschitz", point, centring=True, bend=1
    )
    scaled = [c for c in coordinates if c.scale is not None]
    found = [str(c.scale.name).removeprefix(str(c.name)) for c in scaled]
    assert found == ["_scale", "_weight", "_scale"] * 5


def test_names_of_everything_with_the_full_gradient():
    """Each name is that of one kind of thing, and of a dim whose labels are names too."""
    kinds = "free", "observed", "deterministic", "data", "potential"
    shift = 0
    with pm.Model(coords={f"{name} dim": [f"{name} 0", name, "c"] for name in NAMES}) as model:
        base = pm.HalfNormal("theta_log__")
        for k, name in enumerate(NAMES):
            dim = f"{NAMES[-1 - k]} dim"
            match kinds[k % 5]:
                case "free":
                    shift = shift + pm.Normal(name, dims=dim).sum()
                case "observed":
                    pm.Normal(name, shift, base, observed=np.arange(3.0), dims=dim)
                case "deterministic":
                    pm.Deterministic(name, base + np.ones(3), dims=dim)
                case "data":
                    shift = shift + pm.Data(name, np.ones(3), dims=dim).sum()
                case "potential":
                    pm.Potential(name, -np.ones(3) * base, dims=dim)
    step = sg.SGLD(model=model, step_size=1e-3, backend="jax", **UNTUNED)
    draws = run(step, draws=10, tune=0, chains=1).posterior.to_dataset()
    for k, name in enumerate(NAMES):
        if kinds[k % 5] in ("free", "deterministic"):
            of_dim = draws[name].coords[f"{NAMES[-1 - k]} dim"]
            assert of_dim.values[1] == NAMES[-1 - k]
            assert np.ptp(draws[name].values) > 0


@pytest.mark.filterwarnings("ignore:The result has 20 draws, too few:UserWarning")
@pytest.mark.slow
def test_a_run_its_store_and_its_diagnostics(tmp_path):
    """A stored run is read again under the same names; nothing of a name reaches a path."""
    rng = np.random.default_rng(0)
    mean, rows = 0, f"{NAMES[0]} rows"
    with pm.Model(coords={f"{name} dim": [name, "b", "c"] for name in NAMES}) as model:
        model.add_coord(rows, range(N))
        for name in NAMES:
            index = pm.Data(f"{name} data", np.arange(N) % 3, dims=rows)
            mean = mean + pm.Normal(name, dims=f"{name} dim")[index]
        pm.Normal("|y", mean, pm.HalfNormal("0|sd"), observed=rng.normal(size=N), dims=rows)
    of_rows = {"batch_size": 8, "batch_dim": rows, "backend": "jax"}
    first, again = (
        run(sg.checkpoint(step, tmp_path / "run", model=model), draws=20, chains=1)
        for step in (sg.SGLD(model=model, step_size=1e-4, **of_rows, **UNTUNED) for _ in range(2))
    )
    assert first.posterior.equals(again.posterior)
    draws = first.posterior.to_dataset()
    for name in NAMES:
        assert np.ptp(draws[name].values) > 0
        assert list(draws.coords[f"{name} dim"].values) == [name, "b", "c"]
    noise = sg.diagnostics.gradient_noise(model, first, batches=32, **of_rows)
    assert all(noise[name].sel(estimator="plain").values.all() for name in NAMES)
