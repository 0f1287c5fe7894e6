"""Runs that the system kills at random moments, and long ones."""

import json
import os

from pathlib import Path

import pytest

from helpers.subprocesses import run_python

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(("kept_on", "kills"), [("jax", 8), ("numba", 4)])
def test_a_run_killed_at_random_moments_has_the_bits_of_the_unbroken_run(kept_on, kills, tmp_path):
    if kept_on == "jax":
        pytest.importorskip("jax")
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = run_python(
        TESTS / "store" / "killed_runs.py", kept_on, str(kills), str(tmp_path), timeout=900,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == kills
    assert all(one["same bits"] for one in told), told
    killed = [one for one in told if one["killed"]]
    # How many are over before their moment depends on the machine
    assert len(killed) >= kills // 2
    if kept_on == "numba":
        return  # where it was killed says nothing of the backend
    assert any(one["where"] == "while tuning" for one in killed)
    assert any(one["where"].endswith("draws") for one in killed)
    assert any(one["inside a write"] is not None for one in killed)
