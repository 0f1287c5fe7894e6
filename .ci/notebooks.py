"""Notebooks: made of the scripts in ``notebooks/``, with outputs, and scripts run as programs.

``python .ci/notebooks.py make [NAME ...]`` executes scripts of the percent format, all of
``notebooks/`` or those named, and writes NAME.ipynb beside each: a badge that opens it in Colab, a
cell that installs there, and the script's own cells. ``--to FOLDER`` writes to another place.

``python .ci/notebooks.py words [NAME ...]`` takes over text and layout of scripts of which the code
is as it was, and keeps the outputs.

``python .ci/notebooks.py run FOLDER ...`` runs the scripts of these folders, ``--jobs`` at a time,
prints the seconds of each, and fails where one fails. Files without Jupytext's header are modules,
and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
import tomllib

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
HEADER = "# ---\n# jupyter:\n"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def scripts(folder: Path) -> list[Path]:
    """Return the folder's files that are notebooks."""
    files = sorted(folder.glob("*.py"))
    return [path for path in files if path.read_text(encoding="utf-8").startswith(HEADER)]


def first_cells(name: str) -> list:
    """Return the badge and the cell that installs, which the script does not have."""
    from nbformat.v4 import new_code_cell, new_markdown_cell

    colab = "https://colab.research.google.com"
    owner_and_name = REPOSITORY.removeprefix("https://github.com/")
    path = f"{owner_and_name}/blob/main/notebooks/{name}.ipynb"
    badge = f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({colab}/github/{path})"
    install = (
        'if "google.colab" in str(get_ipython()):\n'
        f"    !git clone -q {REPOSITORY} && pip install -q './{REPOSITORY.split('/')[-1]}"
        "[jax,notebooks]'\n"
        f"    %cd -q {REPOSITORY.split('/')[-1]}/notebooks"
    )
    # Sphinx shows the badge, and not the cell
    return [
        new_markdown_cell(badge),
        new_code_cell(install, metadata={"tags": ["remove-cell"]}),
    ]


def notebook_of(script: Path) -> object:
    """Return the script's notebook without outputs; ids of cells are those of their texts."""
    import jupytext

    notebook = jupytext.read(script, fmt="py:percent")
    notebook.cells = [*first_cells(script.stem), *notebook.cells]
    notebook.metadata = METADATA
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        # How the script is laid out
        cell.metadata.pop("lines_to_next_cell", None)
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    return notebook


def write(notebook: object, path: Path) -> None:
    """Write the notebook without what differs between machines and executions."""
    import nbformat

    notebook.metadata = METADATA
    for output in (output for cell in code_cells(notebook) for output in cell.outputs):
        data = output.get("data", {})
        # A figure's size, or the address of an object
        if "image/png" in data or " at 0x" in data.get("text/plain", ""):
            data.pop("text/plain", None)
        if output.output_type == "stream":
            # The temporary file of a cell that warns
            output.text = re.sub(r"\S*ipykernel_\d+/\d+\.py:\d+: ", "", output.text)
    nbformat.write(notebook, path)


def make(script: Path, folder: Path) -> None:
    """Execute the script's notebook and write it."""
    from nbclient import NotebookClient

    start, notebook = time.perf_counter(), notebook_of(script)
    NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(script.parent)}},
    ).execute()
    path = folder / f"{script.stem}.ipynb"
    write(notebook, path)
    seconds, size = time.perf_counter() - start, path.stat().st_size
    print(f"{seconds:6.0f} s {size / 1e3:6.0f} kB  {path.name}", flush=True)


def words(script: Path, folder: Path) -> None:
    """Give the notebook of a script its text of now, if the code is the same."""
    import nbformat

    path = folder / f"{script.stem}.ipynb"
    notebook, before = notebook_of(script), nbformat.read(path, as_version=4)
    pairs = list(zip(code_cells(notebook), code_cells(before), strict=False))
    same = len(code_cells(notebook)) == len(code_cells(before))
    if not same or any(new.source != old.source for new, old in pairs):
        sys.exit(f"The code of {script.name} has changed: make notebooks NOTEBOOKS={script.stem}")
    for new, old in pairs:
        new.outputs, new.execution_count = old.outputs, old.execution_count
    write(notebook, path)


def code_cells(notebook: object) -> list:
    """Return the notebook's cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run(script: Path) -> bool:
    """Run a script in its folder, print its seconds, and its output where it fails."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        env={**os.environ, "MPLBACKEND": "Agg"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    says = "failed:\n" + done.stdout if done.returncode else ""
    name = script.relative_to(NOTEBOOKS)
    print(f"{time.perf_counter() - start:6.0f} s  {name} {says}", flush=True)
    return done.returncode == 0


def main() -> None:
    """Make or run, as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("make", "words"):
        maker = verbs.add_parser(verb)
        maker.add_argument("names", nargs="*")
        maker.add_argument("--to", type=Path, default=NOTEBOOKS)
    runner = verbs.add_parser("run")
    runner.add_argument("folders", nargs="+", type=Path)
    runner.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.verb != "run":
        # Whole versions, with figures in the cells
        os.environ.pop("SMALL", None)
        os.environ.pop("MPLBACKEND", None)
        found = [NOTEBOOKS / f"{name}.py" for name in arguments.names] or scripts(NOTEBOOKS)
        for script in found:
            {"make": make, "words": words}[arguments.verb](script, arguments.to)
        return
    found = [script for folder in arguments.folders for script in scripts(folder.resolve())]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        passed = list(pool.map(run, found))
    if not all(passed):
        failed = [script.stem for script, fine in zip(found, passed, strict=True) if not fine]
        sys.exit("Failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
