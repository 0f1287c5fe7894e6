"""Posterior moments of the gallery's models by NUTS, stored in ``references/``.

``python tests/benchmarks/make_references.py [names]`` samples these models, or all, on one core.
NUTS is nutpie's: the same posterior as that of ``pm.sample``, in a fraction of the time. A model
is sampled again, longer, until the Monte Carlo error of every mean is below the goal. Models of
posteriordb have their references from there; here they are compared with them. Those of ``SUITE``
have theirs from here, and of posteriordb the means are compared. Of models for several step methods
either a formula is stored, or NUTS samples the model without indicators.
"""

from __future__ import annotations

import json
import sys
import time

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "references"
CHAINS, SEED, RUNS = 4, 1, 4
# Of a variable: Monte Carlo error of the mean over standard deviation
GOAL = 0.02
# Where half of it would take an hour more, and matter little beside the 0.1 that is asked for
GOALS = {"hierarchical_logistic": 0.03, "lotka_volterra": 0.03, "one_comp_mm_elim_abs": 0.03}
DEFAULT = {"tune": 1000, "draws": 10_000}
# Where the default start, all coordinates within one of zero, means a rate of exp(1000)
FIXED_START = {"poisson_scaled"}
SETTINGS: dict[str, dict[str, Any]] = {
    # As posteriordb did it
    "eight_schools_noncentered": {"target_accept": 0.95},
    "latent_gp": {"target_accept": 0.9},
    "gaussian_process_counts": {"target_accept": 0.99},
    "laboratories": {"target_accept": 0.9},
    "local_level": {"target_accept": 0.95},
    "spline_logistic": {"target_accept": 0.9},
    "poisson_unit": {"draws": 2000},
    "prophet": {"draws": 6000},
    "poisson_scaled": {"draws": 1000},
    "a9a": {"draws": 2000, "adaptation": "low_rank"},
    "hierarchical_logistic": {"draws": 2000},
    "mixture_blocks": {"draws": 3000},
    "mixture_of_many_rows": {"draws": 3000},
    "multivariate_normal_rows": {"draws": 3000},
    "three_levels": {"draws": 1000},
    "slopes_of_many_rows": {"draws": 2000},
    "walk_volatility": {"target_accept": 0.99},
    "horseshoe": {"target_accept": 0.99},
    "finnish_horseshoe": {"target_accept": 0.99},
    "groups_of_mixed_size": {"draws": 4000, "target_accept": 0.95},
    "gp_pois_regr": {"draws": 5000, "target_accept": 0.99},
    "gp_regr": {"draws": 2500},
    "lotka_volterra": {"draws": 2000},
    "one_comp_mm_elim_abs": {"draws": 3000, "target_accept": 0.95},
    "accel_gp": {"draws": 3000, "target_accept": 0.95},
}


def rounded(values: Any) -> Any:
    """Return numbers, as nested lists where they are many, to six significant digits."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return float(f"{values:.6g}")


def extreme(function: Any, draws: Any, which: Any, **kwargs: Any) -> float:
    """Return the greatest or least value of a diagnostic over all elements."""
    return float(which([which(x.values) for x in function(draws, **kwargs).values()]))


def moments(draws: Any) -> dict[str, dict[str, Any]]:
    """Return mean, standard deviation and Monte Carlo error of every element."""
    import arviz as az

    error = az.mcse(draws, method="mean")
    return {
        str(name): {
            "mean": rounded(values.mean(("chain", "draw")).values.tolist()),
            "sd": rounded(values.std(("chain", "draw"), ddof=1).values.tolist()),
            "mcse_mean": rounded(error[name].values.tolist()),
        }
        for name, values in draws.items()
    }


def agreement(name: str, variables: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Compare with the reference of posteriordb."""
    import gallery

    errors, ratios = [], []
    for variable, expected in gallery.reference(name).items():
        found = variables[variable]
        errors.append(np.abs((found["mean"] - expected.mean) / expected.sd).max())
        ratios.append(np.abs(found["sd"] / expected.sd - 1).max())
    return {"mean_error_over_sd": rounded(max(errors)), "sd_relative_error": rounded(max(ratios))}


def agreement_of_means(name: str, variables: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Compare with posteriordb's means, and standard deviations where it has squares."""
    from gallery.posteriordb import means

    errors, scaled, ratios = [], [], []
    for (variable, index), expected in means(name).items():
        found = {key: np.asarray(value)[index] for key, value in variables[variable].items()}
        error = abs(found["mean"] - expected["mean"])
        errors.append(error / found["sd"])
        scaled.append(error / np.hypot(found["mcse_mean"], expected["mcse_mean"]))
        if "mean_squared" in expected:
            variance = expected["mean_squared"] - expected["mean"] ** 2
            ratios.append(abs(found["sd"] / np.sqrt(variance) - 1))
    return {
        "mean_error_over_sd": rounded(max(errors)),
        "mean_error_over_mcse": rounded(max(scaled)),
        **({"sd_relative_error": rounded(max(ratios))} if ratios else {}),
    }


def sample(name: str, builder: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """Sample a model until its moments are good enough, and return what is stored."""
    import arviz as az
    import gallery
    import nutpie

    from gallery.posteriordb import means

    model = builder(None) if "batch_size" in signature(builder).parameters else builder()
    names = list(names) or [rv.name for rv in model.free_RVs]
    if name in gallery.POSTERIORDB:
        names = list(gallery.reference(name))
    if name in gallery.SUITE:
        names = list(dict.fromkeys(variable for variable, _ in means(name)))
    settings = DEFAULT | SETTINGS.get(name, {})
    start = time.perf_counter()
    jitter = set() if name in FIXED_START else None
    compiled = nutpie.compile_pymc_model(model, var_names=names, jitter_rvs=jitter)
    compile_seconds = time.perf_counter() - start
    goal = GOALS.get(name, GOAL)
    for _ in range(RUNS):
        start, cpu_start = time.perf_counter(), time.process_time()
        dt = nutpie.sample(
            compiled, chains=CHAINS, cores=1, seed=SEED, progress_bar=False, **settings
        )
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu_start
        draws = dt["posterior"].to_dataset()[names]
        variables = moments(draws)
        error = max(np.max(np.divide(v["mcse_mean"], v["sd"])) for v in variables.values())
        r_hat = extreme(az.rhat, draws, np.max)
        print(f"{name}: {settings}, {seconds:.0f} s, error {error:.4f}, r_hat {r_hat:.4f}")
        if error <= goal and r_hat < 1.01:
            break
        # As the error falls with the root of the draws, and some more
        longer = 1.2 * settings["draws"] * max(error / goal, 1.2) ** 2
        settings |= {"draws": int(np.ceil(longer / 500)) * 500}
    compare = agreement if name in gallery.POSTERIORDB else None
    if name in gallery.SUITE:
        compare = agreement_of_means
    stats = dt["sample_stats"]
    warmup = dt["warmup_sample_stats"]
    return {
        "command": f"python tests/benchmarks/make_references.py {name}",
        "sampler": "NUTS of nutpie, one core",
        "versions": {p: version(p) for p in ("pymc", "pytensor", "nutpie", "numba", "numpy")},
        "seed": SEED,
        "chains": CHAINS,
        **settings,
        "compile_seconds": round(compile_seconds, 1),
        "seconds": round(seconds, 1),
        # What the wall time is on a machine that does nothing else
        "cpu_seconds": round(cpu_seconds, 1),
        "gradients": int(stats["n_steps"].sum() + warmup["n_steps"].sum()),
        "divergences": int(stats["diverging"].sum()),
        "r_hat_max": round(r_hat, 4),
        "ess_min": round(extreme(az.ess, draws, np.min)),
        "ess_tail_min": round(extreme(az.ess, draws, np.min, method="tail")),
        "mcse_over_sd_max": rounded(error),
        **({"agreement": compare(name, variables)} if compare else {}),
        "variables": variables,
    }


def computed(name: str, moments: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return what is stored of moments that a formula or an integral gives."""
    return {
        "command": f"python tests/benchmarks/make_references.py {name}",
        "sampler": "none: exact",
        "versions": {p: version(p) for p in ("numpy", "scipy")},
        "variables": {
            variable: {"mean": rounded(mean), "sd": rounded(sd), "mcse_mean": 0.0}
            for variable, (mean, sd) in moments.items()
        },
    }


def written(content: dict[str, Any]) -> str:
    """Return JSON with a line for every entry and every variable."""
    variables = content["variables"].items()
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in variables]
    rest = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in content.items() if k != "variables"]
    joined = ",\n".join(lines)
    return "{\n" + ",\n".join([*rest, f' "variables": {{\n{joined}\n }}']) + "\n}\n"


def main(names: list[str]) -> None:
    """Make the references of the models named, or of all."""
    import gallery

    from gallery.hierarchies import EXACT
    from gallery.stan_processes import moments_of_rates
    from threadpoolctl import threadpool_limits

    builders = (
        gallery.SMALL
        | gallery.POSTERIORDB
        | gallery.SUITE
        | gallery.LARGE
        | gallery.HIERARCHIES
        | gallery.MIXED
    )
    known = {*builders, *gallery.PAIRS}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"No reference is made of {', '.join(unknown)}; of pairs write the common name.")
    FOLDER.mkdir(exist_ok=True)
    for name in names or [*builders, *gallery.PAIRS]:
        mixed = gallery.MIXED.get(name)
        if name in EXACT:
            content = computed(name, EXACT[name]())
        elif name in (rates := moments_of_rates()):
            content = computed(name, rates[name])
            content = {"agreement": agreement_of_means(name, content["variables"]), **content}
        elif mixed is not None and mixed.exact is not None:
            content = computed(name, mixed.exact())
        elif name in gallery.PAIRS:
            pair = gallery.PAIRS[name]
            with threadpool_limits(1):
                content = sample(name, partial(pair.build, centred=pair.easier), pair.names)
        else:
            with threadpool_limits(1):
                content = sample(name, builders[name] if mixed is None else mixed.marginal)
        (FOLDER / f"{name}.json").write_text(written(content))
        print({k: v for k, v in content.items() if k not in ("variables", "versions")}, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
