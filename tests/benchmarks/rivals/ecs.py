"""NumPyro's HMC with energy-conserving subsampling, and its Taylor proxy at the mode."""

from __future__ import annotations

from typing import Any

from .clock import Clock
from .course import Course
from .mode import mode
from .problems import Problem

# Those of NumPyro's example
SUBSAMPLE, BLOCKS, WARMUP, DRAWS = 1_300, 100, 500, 100


def run(problem: Problem, budget: float, seed: int, clock: Clock) -> Course:
    """Sample with NUTS inside, hundred draws a call."""
    import jax
    import jax.numpy as jnp
    import numpyro

    from numpyro.distributions import distribution
    from numpyro.infer import HMCECS, MCMC, NUTS

    # Imported after PyMC the package does not know its own module, which a factor looks up
    numpyro.distributions.distribution = distribution
    *given, observed = problem.rows

    def model(given: Any, observed: Any) -> None:
        at: dict[str, Any] = {}
        for name, prior in problem.priors(at).items():
            at[name] = numpyro.sample(name, prior)
        with numpyro.plate("rows", len(observed), subsample_size=SUBSAMPLE):
            parts = [numpyro.subsample(x, event_dim=x.ndim - 1) for x in given]
            seen = numpyro.subsample(observed, event_dim=0)
            numpyro.sample("seen", problem.law(at, *parts), obs=seen)

    clock.start()
    data = [jnp.asarray(x) for x in given], jnp.asarray(observed)
    centre = problem.constrained(mode(problem))
    kernel = HMCECS(NUTS(model), num_blocks=BLOCKS, proxy=HMCECS.taylor_proxy(centre))
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=DRAWS, progress_bar=False)
    mcmc.warmup(jax.random.key(seed), *data)
    course = Course()
    while not course.seconds or course.seconds[-1] < budget:
        mcmc.run(jax.random.key(seed + 1), *data)
        draws = jax.block_until_ready(mcmc.get_samples())
        mcmc.post_warmup_state = mcmc.last_state
        course.add_draws(clock.seconds(), problem.stacked(draws))
    return course
