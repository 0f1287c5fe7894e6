"""The recipe of the documentation, on a cluster of this machine's processes."""

import json
import re
import textwrap

from pathlib import Path

import numpy as np
import pytest

from helpers.subprocesses import run_python

pytest.importorskip("distributed")
pytest.importorskip("jax")
pytest.importorskip("zarr")

PAGE = Path(__file__).parents[2] / "docs" / "many_machines.md"

# Workers are spawned: each runs what stands before the guard
PROGRAM = """
import hashlib, json, logging, os, signal, sys, threading, time

from pathlib import Path

import numpy as np

SHARED, CHAINS, WORKERS, KILL = json.loads(sys.argv[1])
logging.disable(logging.WARNING)

{functions}

def bits(dt):
    parts = [x.values for group in ("posterior", "sample_stats") for x in dt[group].values()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in parts)).hexdigest()


def sampled():
    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as SCHEDULER:
{calls}
    return dt


def kill_a_worker():
    # Of a chain that has a state on disk and is not complete, as soon as there is one
    while not (states := list(Path(SHARED).glob("run/*/*/state-1"))):
        time.sleep(0.01)
    os.kill(int((states[0].parent / "lock").read_text()), signal.SIGKILL)


if __name__ == "__main__":
    from dask.distributed import LocalCluster

    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    rows = zarr.open_group(f"{{SHARED}}/rows.zarr", mode="w")
    rows["x"], rows["y"] = X, X @ [1.0, 2.0] + rng.normal(size=2000)
    killer = threading.Thread(target=kill_a_worker)
    if KILL:
        killer.start()
    dt = sampled()
    killed = KILL and not killer.is_alive()
    sizes, mean = dict(dt.posterior.sizes), dt.posterior["beta"].mean(("chain", "draw"))
    told = {{"sizes": sizes, "mean": mean.values.tolist(), "killed": killed, "bits": bits(dt)}}
    print(json.dumps(told), flush=True)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if not PAGE.exists():
        pytest.skip("needs the folder docs, which is not part of a source distribution")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    functions, calls = blocks
    path = tmp_path_factory.mktemp("machines") / "program.py"
    # Draws are kept soon, so that there is something to kill
    functions = functions.replace('{number}")', '{number}", every=0.2)')
    calls = textwrap.indent(calls.replace("range(8)", "range(CHAINS)"), 8 * " ")
    path.write_text(PROGRAM.format(functions=functions, calls=calls), "utf-8")
    return path


def run(program, shared, chains, workers, kill=False):
    shared.mkdir()
    done = run_python(program, json.dumps([str(shared), chains, workers, kill]), timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["sizes"] == {"chain": chains, "draw": 1000, "beta_dim_0": 2}
    np.testing.assert_allclose(told["mean"], [1.0, 2.0], atol=5 / np.sqrt(2000))
    return told


@pytest.mark.slow
def test_four_chains_on_two_workers_one_of_which_is_killed(program, tmp_path):
    unbroken = run(program, tmp_path / "unbroken", chains=4, workers=2)
    killed = run(program, tmp_path / "killed", chains=4, workers=2, kill=True)
    assert killed["killed"]
    assert killed["bits"] == unbroken["bits"]
