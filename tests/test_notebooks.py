"""The notebooks are made of the scripts beside them, executed, and small."""

import importlib.util
import re

from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
MAKER = ROOT / ".ci" / "notebooks.py"
MOST, MOST_OF_ALL = 1_000_000, 8_000_000
# Of a machine, of a process, what a progress bar leaves, and of objects
DEBRIS = re.compile(r"/(home|root|tmp|work|Users)/|site-packages|ipykernel_|\r|\x1b|Text\(| at 0x")

if not MAKER.exists():
    pytest.skip("needs the repository, not a source distribution", allow_module_level=True)


def loaded():
    spec = importlib.util.spec_from_file_location("notebooks", MAKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = loaded()
SCRIPTS = maker.scripts(NOTEBOOKS)


@pytest.fixture(params=SCRIPTS, ids=lambda path: path.stem)
def script(request):
    return request.param


@pytest.fixture
def notebook(script):
    path = script.with_suffix(".ipynb")
    assert path.exists(), f"missing: make notebooks NOTEBOOKS={script.stem}"
    return nbformat.read(path, as_version=4)


def outputs(notebook):
    return [output for cell in maker.code_cells(notebook) for output in cell.outputs]


def texts(output):
    yield output.get("text", "")
    yield from (x for kind, x in output.get("data", {}).items() if kind.startswith("text/"))


def test_every_notebook_has_a_script():
    assert SCRIPTS
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {path.stem for path in SCRIPTS}


def test_notebook_is_that_of_its_script(script, notebook):
    def cells(of):
        return [(cell.cell_type, cell.source, cell.id, cell.metadata) for cell in of.cells]

    expected = maker.notebook_of(script)
    code = [cell.source for cell in maker.code_cells(expected)]
    same_code = [cell.source for cell in maker.code_cells(notebook)] == code
    command = f"make notebooks NOTEBOOKS={script.stem}"
    if same_code:
        command = f"python .ci/notebooks.py words {script.stem}"
    assert cells(notebook) == cells(expected), f"{script.name} has changed: {command}"
    assert notebook.metadata == expected.metadata


def test_cells_of_the_script_are_all_there(script, notebook):
    cells = jupytext.read(script, fmt="py:percent").cells
    assert [cell.source for cell in notebook.cells[2:]] == [cell.source for cell in cells]


def test_notebook_was_executed_in_order_and_without_errors(notebook):
    cells = maker.code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    # A picture at least
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_outputs_are_of_no_machine(notebook):
    found = [text for output in outputs(notebook) for text in texts(output)]
    assert [text for text in found if DEBRIS.search(text)] == []
    # Timestamps of an execution would be another at each
    assert [cell for cell in notebook.cells if "execution" in cell.metadata] == []


def test_notebooks_are_small(script, notebook):
    assert script.with_suffix(".ipynb").stat().st_size < MOST
    assert sum(path.stat().st_size for path in NOTEBOOKS.glob("*.ipynb")) < MOST_OF_ALL


def test_top_says_how_long_it_takes(script):
    title, *rest = jupytext.read(script, fmt="py:percent").cells[0].source.splitlines()
    assert title.startswith("# ")
    assert re.search(r"\bminutes?\b", " ".join(rest))


def test_words_are_taken_over_and_changed_code_is_not(tmp_path):
    header = maker.HEADER + "#   jupytext: {}\n# ---\n\n"
    script = tmp_path / "one.py"
    script.write_text(header + "# %% [markdown]\n# Old\n\n# %%\n1\n", encoding="utf-8")
    made = maker.notebook_of(script)
    made.cells[-1].outputs = [nbformat.v4.new_output("stream", text="kept")]
    nbformat.write(made, tmp_path / "one.ipynb")
    script.write_text(header + "# %% [markdown]\n# New\n\n# %%\n1\n", encoding="utf-8")
    maker.words(script, tmp_path)
    now = nbformat.read(tmp_path / "one.ipynb", as_version=4)
    assert now.cells[2].source == "New"
    assert now.cells[-1].outputs[0].text == "kept"
    script.write_text(header + "# %% [markdown]\n# New\n\n# %%\n2\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="make notebooks NOTEBOOKS=one"):
        maker.words(script, tmp_path)


def test_scripts_that_fail_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(maker, "NOTEBOOKS", tmp_path)
    for name, line in (("bad", "1 / 0"), ("good", "print(1)"), ("helper", "")):
        header = "" if name == "helper" else maker.HEADER + "# ---\n"
        (tmp_path / f"{name}.py").write_text(header + line + "\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["notebooks.py", "run", str(tmp_path), "--jobs", "2"])
    with pytest.raises(SystemExit, match=r"^Failed: bad$"):
        maker.main()
    out = capsys.readouterr().out
    assert "ZeroDivisionError" in out
    assert "good.py" in out
    assert "helper" not in out
