"""Small runs that are kept on disk, or killed, and their bits."""

import hashlib
import itertools
import multiprocessing

from contextlib import contextmanager
from copy import copy
from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers import steps
from helpers.sampling import QUIET
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.store import chain_store, files
from pymc_sgmcmc.testing import UNTUNED


@cache
def location(rows=400, seed=0, width=10.0):
    """A minibatch, a bounded variable and a deterministic, with little to compile."""
    with steps.location(rows, seed, width) as model:
        pm.Deterministic("ratio", model["mu"] / model["sigma"])
    return model


def untuned(model, **options):
    return sg.CoRVSGLD(
        model=model, **{**UNTUNED, "step_size": 1e-4, "thin": 5, "backend": "jax", **options}
    )


_COMPILED = {}


def run(
    path, draws=30, *, make=location, step=untuned, as_compiled=None, every=0.0, after=None,
    **options,
):  # fmt: skip
    """Sample two chains, kept in a folder; or not, where there is none."""
    # What PyMC computes in each draw is quicker interpreted than compiled
    with interpreted(), make() as model:
        method = step(model)
        # What is compiled has no state: runs of one model share it, by the same steps or such as
        # differ only in what is not compiled
        key = id(model), as_compiled or step
        ours = next(m for m in np.atleast_1d(method) if isinstance(m, sg.SGMCMCStep))
        ours._engine = _COMPILED.get(key)
        if path is not None:
            method = sg.checkpoint(method, path, every=every, after=after)
        try:
            return pm.sample(
                draws, step=method,
                **{"tune": 10, "chains": 2, "cores": 1, "random_seed": 1, **QUIET, **options},
            )  # fmt: skip
        finally:
            _COMPILED[key] = ours._engine


def bits(result):
    """A digest of all draws and statistics, with their names and types."""
    digest = hashlib.sha256()
    for group in ("posterior", "sample_stats"):
        for name, values in sorted(result[group].data_vars.items()):
            digest.update(f"{group} {name} {values.dtype} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values.values).tobytes())
    return digest.hexdigest()


class KilledError(BaseException):
    """The process ended here."""


class Killer:
    """Ends the process after so many draws of all chains."""

    def __init__(self, draws):
        self.draws = draws

    def __call__(self, trace, draw):
        self.draws -= 1
        if self.draws < 0:
            raise KilledError


def killed(path, *counts, **options):
    """Begin a run and go on with it, each time killed after so many draws."""
    for count in counts:
        with pytest.raises(KilledError):
            run(path, callback=Killer(count), **options)


def assert_goes_on(path, *counts, unbroken=None, **options):
    """Assert that a run has the bits of one that is not killed, with the same options or others."""
    killed(path, *counts, **options)
    expected = run(None, **(options if unbroken is None else unbroken))
    assert bits(run(path, **options)) == bits(expected)


def failing_writes(patch, fails, error, byte=None):
    """Let writes into stores end in an error, in their middle or after some bytes.

    ``fails`` says of the number of a write, from 0, whether it does.
    """
    append, numbers = files.append, itertools.count()

    def write(descriptor, data):
        if fails(next(numbers)):
            append(descriptor, data[: len(data) // 2 if byte is None else byte])
            raise copy(error)
        append(descriptor, data)

    patch.setattr(files, "append", write)


@contextmanager
def open_in_another_process(folder):
    """Have another process keep a chain's store open, of which the number is returned.

    It is killed at the end, so that the system gives the store free.
    """
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()

    def keep():
        store = chain_store.ChainStore(folder)
        store.open()
        theirs.send("open")
        theirs.recv()

    other = fork.Process(target=keep)
    other.start()
    try:
        assert ours.recv() == "open"
        yield other.pid
    finally:
        other.kill()
        other.join()
