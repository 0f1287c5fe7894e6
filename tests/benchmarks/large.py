"""Models of many parameters, untuned: factorisations, item response, image nets.

Run all with ``python tests/benchmarks/large.py``, some with ``--models ratings --methods MSGNHT``.
Nothing is given to a step but what the model is called for, each run in a fresh process:

- ``ratings``: MovieLens 100K, rank 10, biases of users and items, learned scales, batches of 1,000,
  a tenth of the rows held out. The method ``Gibbs`` samples the same posterior by its exact
  conditionals, ``ADVI`` is PyMC's on the same batches, ``Adam`` a point estimate of all but the
  scales, which it is given. Figures: RMSE and mean log density of held-out ratings, the farthest
  that two chains are apart in a scale (in its sds), and the mean of the noise's sd.
- ``many ratings``: as many users and items as MovieLens 10M, rank 20, ten million made ratings,
  float32, batches of 10,000, one chain of 200 draws after 100 that are discarded: PyMC holds these
  too. Figures: milliseconds of an update of one batch, the process's peak memory and that of the
  draws, the RMSE of new ratings beside that of who knows the truth, and the mean of the noise's sd.
- ``items``: two-parameter item response, 20,000 people of known abilities, 50 items. Figures: the
  shares of abilities in their intervals of 50 and 90 %, and of sds within 10 % of the exact ones
  given the items.
- ``images 0.1``, ``images 0.3``: Fashion-MNIST, 784-100-10 tanh, float32, weights of that sd,
  batches of 500, two chains of 200 draws. Figures: accuracy, negative log likelihood and expected
  calibration error (15 bins) of the mean predicted probabilities. The method ``cyclical`` is MSGNHT
  with a cyclical step size, ten cycles of as many updates as the untuned run takes in all; ``Adam``
  a point estimate, the mode that 30 epochs find, and ``ensemble`` 40 of these from random starts:
  as many gradients as MSGNHT takes. ``HMC``, which runs only where it is named, takes gradients of
  all rows in two chains from two such modes: what is exact, by a GPU in minutes.

Columns: the figures, and seconds from the call to the result, PyMC's checks left out. ``--write
FILE`` also writes a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

from pathlib import Path
from typing import Any

import factorisations
import numpy as np

from table import Table, digits, fresh

ROOT = Path(__file__).parents[2]
MODELS = "ratings", "many ratings", "items", "images 0.1", "images 0.3"
METHODS = "MSGNHT", "CoRVSGLD"
# Beside these, of one model alone
OTHERS = {"ratings": ["Gibbs", "ADVI", "Adam"], "images 0.1": ["cyclical", "Adam", "ensemble"]}
OTHERS["images 0.3"] = OTHERS["images 0.1"]
COLUMNS = "model", "method", "figures", "seconds"
RANK, FEWER = 10, 5
USERS, ITEMS, RANK_OF_MANY, UPDATES = 71_567, 10_681, 20, 50
# Of images: 300 draws of 240 updates are 72,000 in a chain, of two passes over the data each
BATCH, CYCLE, UPDATES_OF_A_DRAW, EPOCHS, MEMBERS = 500, 7_200, 48, 30, 40
CHAINS_OF_HMC = 2


def sampled(
    model: Any, method: str, seed: int, **options: Any
) -> tuple[dict[str, np.ndarray], float]:
    """Return draws by name, chains and draws first, and seconds."""
    import pymc as pm

    import pymc_sgmcmc as sg

    start = time.perf_counter()
    with model:
        if method == "cyclical":
            h = sg.cyclical(h0=0.3, period=CYCLE)
            step = sg.MSGNHT(step_size=h, thin=UPDATES_OF_A_DRAW)
        else:
            step = getattr(sg, method)()
        result = pm.sample(
            step=step,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
            **{"chains": 2, **options},
        )
    seconds = time.perf_counter() - start
    draws = {name: x.values for name, x in result.posterior.data_vars.items()}
    # Equal but where the step size changes
    return {**draws, "weight": result.sample_stats["weight"].values}, seconds


def each(draws: dict[str, np.ndarray], step: int = 1) -> list[dict[str, np.ndarray]]:
    """Return some draws of all chains, one after the other."""
    chains, count = next(iter(draws.values())).shape[:2]
    return [
        {name: x[c, d] for name, x in draws.items()}
        for c in range(chains)
        for d in range(0, count, step)
    ]


# ---------------------------------------------------------------------- ratings


def ratings(method: str, seed: int) -> dict[str, float]:
    """Factorise MovieLens 100K."""
    import datasets
    import pymc as pm

    from scipy.special import logsumexp

    user, item, rating, _ = datasets.ratings()
    held_out = np.random.default_rng(0).random(len(rating)) < 0.1
    rows = [x[~held_out] for x in (user, item, rating.astype(float))]
    u, i, r = (x[held_out] for x in (user, item, rating.astype(float)))
    users, items = int(user.max()) + 1, int(item.max()) + 1
    start = time.perf_counter()
    if method in ("Gibbs", "Adam"):
        draws = getattr(factorisations, method.lower())(*rows, users, items, RANK)
    else:
        with pm.Model() as model:
            ub, ib, rb = pm.Minibatch(*rows, batch_size=1_000)
            mu = pm.Normal("mu", 3.5, 1)
            a = pm.Normal("a", 0, pm.HalfNormal("sd_a", 1), shape=users)
            b = pm.Normal("b", 0, pm.HalfNormal("sd_b", 1), shape=items)
            sd = pm.HalfNormal("sd_factor", 1)
            P = pm.Normal("P", 0, sd, shape=(users, RANK))
            Q = pm.Normal("Q", 0, sd, shape=(items, RANK))
            mean = mu + a[ub] + b[ib] + (P[ub] * Q[ib]).sum(axis=1)
            sigma = pm.HalfNormal("sigma", 1)
            pm.Normal("r", mean, sigma, observed=rb, total_size=len(rows[0]))
        draws = factorisations.advi(model) if method == "ADVI" else sampled(model, method, seed)[0]
    seconds = time.perf_counter() - start
    predicted, densities = np.zeros(len(r)), []
    some = each(draws, FEWER)
    for d in some:
        f = d["mu"] + d["a"][u] + d["b"][i] + (d["P"][u] * d["Q"][i]).sum(axis=1)
        predicted += f / len(some)
        z = (r - f) / d["sigma"]
        densities.append(-(z**2) / 2 - np.log(d["sigma"]) - np.log(2 * np.pi) / 2)
    scales = [draws[name] for name in ("sd_a", "sd_b", "sd_factor", "sigma")]
    # Of one chain, or of a point, nothing
    apart = [abs(x[0].mean() - x[-1].mean()) / max(x.std(axis=1).mean(), 1e-9) for x in scales]
    return {
        "RMSE": float(np.sqrt(np.mean((np.clip(predicted, 1, 5) - r) ** 2))),
        "log density": float(np.mean(logsumexp(densities, axis=0) - np.log(len(some)))),
        "scales apart": float(max(apart)),
        "sigma": float(draws["sigma"].mean()),
        "seconds": seconds,
    }


# ---------------------------------------------------------------------- ten million ratings


def many_ratings(method: str, seed: int) -> dict[str, float]:
    """Factorise ten million made ratings."""
    import pytensor

    pytensor.config.floatX = "float32"
    import pymc as pm

    import pymc_sgmcmc as sg

    (u, i, r), truth, noise = factorisations.made(USERS, ITEMS, RANK_OF_MANY, 10_000_000)
    with pm.Model() as model:
        ub, ib, rb = pm.Minibatch(u, i, r, batch_size=10_000)
        mu, sd = pm.Normal("mu", 3.5, 1), pm.HalfNormal("sd", 1)
        U = pm.Normal("U", 0, sd, shape=(USERS, RANK_OF_MANY))
        V = pm.Normal("V", 0, sd, shape=(ITEMS, RANK_OF_MANY))
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("r", mu + (U[ub] * V[ib]).sum(axis=1), sigma, observed=rb, total_size=len(r))
    draws, seconds = sampled(model, method, seed, draws=200, tune=100, chains=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rng = np.random.default_rng(1)
    some = rng.integers(0, USERS, 200_000), rng.integers(0, ITEMS, 200_000)
    predicted = np.mean(
        [d["mu"] + factorisations.products(d["U"], d["V"], *some) for d in each(draws)], axis=0
    )
    off = predicted - truth(*some)
    found = {
        "peak GB": peak,
        "GB of draws": sum(x.nbytes for x in draws.values()) / 1e9,
        # Of new ratings, whose noise would leave `noise` of it to who knew the truth
        "RMSE": float(np.sqrt(np.mean(off**2) + noise**2)),
        "RMSE of the truth": noise,
        "sigma": float(draws["sigma"].mean()),
        "seconds": seconds,
    }
    # What one update of one batch takes: the first draws compile
    times: list[float] = []
    with model:
        by_hand = getattr(sg, method)(
            step_size=1e-4, thin=UPDATES, gradient="plain", batches=1, scale={"U": 0.1, "V": 0.1}
        )
        pm.sample(
            draws=8,
            tune=0,
            step=by_hand,
            chains=1,
            var_names=["sigma"],
            callback=lambda **_: times.append(time.perf_counter()),
            progressbar=False,
            compute_convergence_checks=False,
        )
    return {"ms an update": 1e3 * float(np.median(np.diff(times))) / UPDATES, **found}


# ---------------------------------------------------------------------- items


def item_response(method: str, seed: int) -> dict[str, float]:
    """Judge abilities of made people."""
    import pymc as pm

    people, items = 20_000, 50
    rng = np.random.default_rng(3)
    ability, slope, difficulty = (
        rng.normal(size=people),
        rng.lognormal(0, 0.3, items),
        rng.normal(size=items),
    )
    p, i = np.repeat(np.arange(people), items), np.tile(np.arange(items), people)
    order = rng.permutation(len(p))
    p, i = p[order], i[order]
    y = rng.random(len(p)) < 1 / (1 + np.exp(-slope[i] * (ability[p] - difficulty[i])))
    with pm.Model() as model:
        pb, ib, yb = pm.Minibatch(p, i, y.astype(float), batch_size=1_000)
        theta = pm.Normal("ability", 0, 1, shape=people)
        d = pm.Normal("difficulty", 0, 1, shape=items)
        a = pm.LogNormal("slope", 0, 0.5, shape=items)
        pm.Bernoulli("y", logit_p=a[ib] * (theta[pb] - d[ib]), observed=yb, total_size=len(y))
    draws, seconds = sampled(model, method, seed)
    x = draws["ability"].reshape(-1, people)
    inside = []
    for share in (0.5, 0.9):
        low, high = np.quantile(x, [(1 - share) / 2, (1 + share) / 2], axis=0)
        inside.append(float(np.mean((ability > low) & (ability < high))))
    # The exact law of each ability given the items, on a grid
    grid = np.linspace(-6, 6, 601)
    eta = draws["slope"].mean(axis=(0, 1)) * (grid[:, None] - draws["difficulty"].mean(axis=(0, 1)))
    right = np.zeros((people, items))
    right[p, i] = y
    log_law = right @ eta.T - np.logaddexp(0, eta).sum(axis=1) - grid**2 / 2
    law = np.exp(log_law - log_law.max(axis=1, keepdims=True))
    law /= law.sum(axis=1, keepdims=True)
    exact = np.sqrt(law @ grid**2 - (law @ grid) ** 2)
    return {
        "in 50 %": inside[0],
        "in 90 %": inside[1],
        "sds right": float(np.mean(np.abs(x.std(axis=0) / exact - 1) < 0.1)),
        "seconds": seconds,
    }


# ---------------------------------------------------------------------- images


def images(method: str, sd: float, seed: int) -> dict[str, float]:
    """Classify Fashion-MNIST by a net."""
    import pytensor

    pytensor.config.floatX = "float32"
    import datasets
    import pymc as pm

    X, y, _ = datasets.fashion()
    X, y = np.asarray(X, "float32").reshape(len(X), -1), np.asarray(y)
    X = X / X.max()
    train, rest = slice(0, len(X) * 6 // 7), slice(len(X) * 6 // 7, None)
    if method in ("Adam", "ensemble"):
        some, seconds = modes(X[train], y[train], sd, 1 if method == "Adam" else MEMBERS)
    elif method == "HMC":
        some, seconds = exact(X[train], y[train], sd)
    else:
        with pm.Model() as model:
            xb, yb = pm.Minibatch(X[train], y[train].astype("int16"), batch_size=BATCH)
            W, b = pm.Normal("W", 0, sd, shape=(X.shape[1], 100)), pm.Normal("b", 0, sd, shape=100)
            V, c = pm.Normal("V", 0, sd, shape=(100, 10)), pm.Normal("c", 0, sd, shape=10)
            hidden = pm.math.tanh(xb @ W + b)
            pm.Categorical("y", logit_p=hidden @ V + c, observed=yb, total_size=len(X[train]))
        draws, seconds = sampled(model, method, seed, draws=200, tune=100)
        some = each(draws)
    mean = np.zeros((len(X[rest]), 10))
    for d in some:
        z = log_odds(d, X[rest])
        z = np.exp(z - z.max(axis=1, keepdims=True))
        mean += d["weight"] * z / z.sum(axis=1, keepdims=True)
    mean /= sum(d["weight"] for d in some)
    sure, right = mean.max(axis=1), mean.argmax(axis=1) == y[rest]
    bins = np.minimum((sure * 15).astype(int), 14)
    off = [abs(sure[bins == k].sum() - right[bins == k].sum()) for k in range(15)]
    return {
        "accuracy": float(right.mean()),
        "NLL": float(-np.mean(np.log(mean[np.arange(len(right)), y[rest]]))),
        "ECE": float(np.sum(off) / len(right)),
        "seconds": seconds,
    }


def log_odds(weights: Any, X: Any, np: Any = np) -> Any:
    """Return the logarithm of the odds of each class, by NumPy or by what stands for it."""
    return np.tanh(X @ weights["W"] + weights["b"]) @ weights["V"] + weights["c"]


def modes(
    X: np.ndarray, y: np.ndarray, sd: float, members: int
) -> tuple[list[dict[str, np.ndarray]], float]:
    """Return modes that Adam finds from random starts, and seconds."""
    from trained import trained

    begun, loss = time.perf_counter(), loss_of_row(sd, len(y))
    starts = random_nets(members, X.shape[1])
    found = list(trained(loss, starts, [X, y], batch_size=BATCH, epochs=EPOCHS))
    return [{**weights, "weight": np.ones(())} for weights in found], time.perf_counter() - begun


def exact(X: np.ndarray, y: np.ndarray, sd: float) -> tuple[list[dict[str, np.ndarray]], float]:
    """Return draws by gradients of all rows from random starts, and seconds."""
    from full_hmc import sampled_by_hmc
    from trained import trained

    begun, loss, count = time.perf_counter(), loss_of_row(sd, len(y)), len(y)

    def potential(weights: Any, rows: Any) -> Any:
        return count * loss(weights, *rows)

    starts = random_nets(CHAINS_OF_HMC, X.shape[1])
    starts = list(trained(loss, starts, [X, y], batch_size=BATCH, epochs=EPOCHS))
    found, rate = sampled_by_hmc(potential, [X, y], starts, path=1.5 * sd)
    print(f"accepted: {rate:.3f}")
    return [{**weights, "weight": np.ones(())} for weights in found], time.perf_counter() - begun


def loss_of_row(sd: float, count: int) -> Any:
    """Return the loss of a row of a net, of which U is ``count`` times as much."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, X: Any, y: Any) -> Any:
        log_p = jax.nn.log_softmax(log_odds(weights, X, jnp))
        squares = sum(jnp.sum(w**2) for w in weights.values())
        return -jnp.mean(log_p[jnp.arange(len(y)), y]) + squares / (2 * sd**2 * count)

    return loss


def random_nets(number: int, pixels: int) -> list[dict[str, np.ndarray]]:
    """Return weights of nets that have learned nothing yet."""
    rng = np.random.default_rng(1)
    shapes = {"W": (pixels, 100), "b": (100,), "V": (100, 10), "c": (10,)}
    return [
        {
            name: (rng.standard_normal(shape) / shape[0] ** 0.5).astype("float32")
            for name, shape in shapes.items()
        }
        for _ in range(number)
    ]


def measure(model: str, method: str, seed: int) -> dict[str, float]:
    """Run one method on one model; what is no step method has a seed of its own."""
    sys.path.insert(0, str(ROOT / "notebooks" / "reproductions"))
    if model == "ratings":
        return ratings(method, seed)
    if model == "many ratings":
        return many_ratings(method, seed)
    if model == "items":
        return item_response(method, seed)
    return images(method, float(model.split()[1]), seed)


def main() -> None:
    """Run the models, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--methods", nargs="*", help="all that a model has by default")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        model, method, seed = arguments.one
        print(json.dumps(measure(model, method, int(seed))))
        return
    table = Table(COLUMNS, MODELS, arguments.write)
    for model in arguments.models:
        for method in arguments.methods or [*METHODS, *OTHERS.get(model, [])]:
            if (found := fresh(__file__, "--one", model, method, 1)) is None:
                continue
            seconds = digits(found.pop("seconds"))
            figures = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
            print(f"{model}  {method}  {figures}  {seconds} s", flush=True)
            table.add([model, method, figures, seconds])


if __name__ == "__main__":
    main()
