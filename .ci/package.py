"""Build the wheel and the source distribution, check both, and sample with the wheel alone.

`build` makes the wheel from the source distribution, so that both are complete. The wheel is
installed into an environment of its own, first without JAX and then with it.
"""

import os
import shutil
import subprocess
import sys
import venv

from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
FRESH = ROOT / "build" / "fresh"


def run(*command: str | Path) -> None:
    """Run a command from the root, and end with its status if it fails."""
    print("==", *command, flush=True)
    if status := subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(status)


def main() -> None:
    """Run all of it."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    [wheel] = DIST.glob("*.whl")
    venv.create(FRESH, clear=True, with_pip=True)
    python = FRESH / ("Scripts" if os.name == "nt" else "bin") / "python"
    for extra, backend in (("", "numba"), ("[jax]", "jax")):
        run(python, "-m", "pip", "install", "-q", "-c", ".constraints.txt", f"{wheel}{extra}")
        # -I: neither the checkout nor PYTHONPATH is imported from
        run(python, "-I", Path(".ci", "sample.py"), backend)


if __name__ == "__main__":
    main()
