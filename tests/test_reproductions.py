"""What the experiments of ``notebooks/reproductions`` share."""

import importlib
import json
import re
import sys

from functools import partial
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks" / "reproductions"


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    sys.modules.pop("reproduction", None)
    import reproduction

    yield reproduction
    del sys.modules["reproduction"]


def test_a_digest_is_of_code_and_not_of_words(shared):
    code = 'def f(x):\n    """One."""\n    return x + 1  # why\n'
    assert shared.digest(code) == shared.digest(code.replace("One", "Two").replace("why", "how"))
    assert shared.digest(code) != shared.digest(code.replace("+ 1", "+ 2"))


@pytest.mark.skipif(sys.version_info < (3, 13), reason="prints empty lists in any case")
def test_a_digest_is_that_of_a_python_that_prints_empty_lists(shared, monkeypatch):
    found = shared.digest("f()")
    monkeypatch.setattr(shared.ast, "dump", partial(shared.ast.dump, show_empty=True))
    assert shared.digest("f()") == found


def test_a_changed_sampler_is_named(shared, monkeypatch, tmp_path):
    now = shared.sources("msgnht_a9a")
    assert {"samplers/msgnht.py", "samplers/sghmc.py", "transforms/bounded.py"} <= set(now)
    monkeypatch.setattr(shared, "VERDICTS", tmp_path)
    file = tmp_path / "msgnht_a9a.json"
    file.write_text(json.dumps({"sources": now}))
    assert shared.changed("msgnht_a9a") == []
    file.write_text(json.dumps({"sources": {**now, "samplers/msgnht.py": "another"}}))
    assert shared.changed("msgnht_a9a") == ["samplers/msgnht.py"]


def test_a_step_size_can_be_set_and_changes_within_a_run(shared):
    halved = shared.StepSize(2.0, factor=lambda t: np.where(t < 2, 1.0, 0.5))
    np.testing.assert_array_equal(halved(np.arange(4)), [2.0, 2.0, 1.0, 1.0])
    halved.h = 4.0
    np.testing.assert_array_equal(halved(np.arange(4)), [4.0, 4.0, 2.0, 2.0])


def test_a_search_returns_the_least_value_first(shared):
    tried = shared.search(lambda h: abs(np.log(h / 0.03)), 1e-4, 1.0, 12, first=0.5)
    best = next(iter(tried))
    assert len(tried) == 12
    assert 0.5 in tried
    assert tried[best] == min(tried.values()) < 1.0


def test_a_run_tells_only_what_is_two_errors_from_the_threshold(shared):
    assert shared.beyond(0.3, 0.1, 0.05) is True
    assert shared.beyond(-0.3, 0.1) is False
    assert shared.beyond(0.3, 0.2) is None
    mean, error = shared.over_seeds([1.0, 2.0, 3.0])
    assert mean == 2.0
    np.testing.assert_allclose(error, 3**-0.5)


def test_one_that_does_not_hold_decides_before_one_that_cannot_be_told(shared):
    assert shared.every([True, True]) is True
    assert shared.every([True, None]) is None
    assert shared.every([None, False]) is False


def test_a_full_run_keeps_what_it_printed_beside_its_verdicts(
    shared, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(shared, "SMALL", False)
    monkeypatch.setattr(shared, "VERDICTS", tmp_path)
    run = shared.Reproduction("msgnht_a9a", "Li et al. (2016)", "Table 2")
    print("84.9 %")
    run.verdict("85 %", "84.9 ± 0.1", None, seeds=3)
    run.end()
    print("later")
    assert (tmp_path / "msgnht_a9a.txt").read_text() == "84.9 %\n"
    kept = json.loads((tmp_path / "msgnht_a9a.json").read_text())
    assert kept["verdicts"] == [{"says": "85 %", "seen": "84.9 ± 0.1", "holds": None, "seeds": 3}]
    assert "cores" in kept["machine"]
    shown = capsys.readouterr().out
    assert "84.9 %\nThe paper says 85 %; we see 84.9 ± 0.1 (seeds: 3): cannot be told" in shown
    assert shown.endswith("later\n")


class TestClaims:
    """Every row of the table of the papers' claims is somewhere."""

    def test_rows_are_complete(self, shared):
        rows = shared.claims()
        items = [(row["paper"], row["item"]) for row in rows]
        assert len(items) == len(set(items))
        for row in rows:
            assert row["about"], row["item"]
            assert ("why" in row) != ("notebook" in row or "tests" in row), row["item"]
            assert "settings" in row or "notebook" not in row, row["item"]

    def test_tests_are_there(self, shared):
        for row in shared.claims():
            for test in row.get("tests", []):
                assert (FOLDER.parents[1] / test).exists(), row["item"]

    def test_every_run_and_each_of_its_verdicts_is_in_a_row(self, shared):
        rows = [row for row in shared.claims() if "notebook" in row]
        for file in sorted((FOLDER / "verdicts").glob("*.json")):
            assert (FOLDER / f"{file.stem}.py").exists()
            found = json.loads(file.read_text())
            own = [row for row in rows if row["notebook"] == file.stem]
            assert own, file.stem
            # Older runs have no date
            if "date" in found:
                assert {row["paper"] for row in own} == {found["paper"]}, file.stem
                for verdict in found["verdicts"]:
                    patterns = [row.get("verdicts", "") for row in own]
                    found_by = [p for p in patterns if re.search(p, verdict["says"], re.IGNORECASE)]
                    assert found_by, (file.stem, verdict["says"])

    def test_every_row_of_a_run_has_verdicts(self, shared, monkeypatch):
        pytest.importorskip("sphinx")
        monkeypatch.syspath_prepend(FOLDER.parents[1] / "docs" / "_ext")
        verdicts = importlib.import_module("verdicts")
        for row in shared.claims():
            file = FOLDER / "verdicts" / f"{row.get('notebook')}.json"
            if file.exists() and "date" in (found := json.loads(file.read_text())):
                assert verdicts.belonging(row, found), row["item"]


def test_a_power_is_fitted_to_the_errors_that_can_be_seen(shared):
    seen = {h: (-3 * h**2, 0.01 * h**2) for h in (0.1, 0.2, 0.4)}
    np.testing.assert_allclose(shared.power(seen | {0.01: (5.0, 4.0)})[0], 2.0)
    assert np.isnan(shared.power({0.1: (1.0, 0.1), 0.2: (1.0, 0.9)})[0])


def test_an_error_is_what_an_untuned_call_gives(shared, monkeypatch, tmp_path):
    monkeypatch.setattr(shared, "VERDICTS", tmp_path)
    run = shared.Reproduction("msgnht_a9a", "Li et al. (2016)", "Table 2")
    with run.untuned("sg.MSGNHT()") as gives:
        gives("84.9 %", np.True_)
    with run.untuned("sg.SMLD()"):
        raise ValueError("no density. Pass a step_size.")
    with pytest.raises(KeyError), run.untuned("sg.FLA()"):
        raise KeyError("a mistake of the notebook")
    kept = [(x["call"], x["seen"], x["right"]) for x in run.nothing_set]
    assert kept == [
        ("sg.MSGNHT()", "84.9 %", True),
        ("sg.SMLD()", "an error, «no density»,", False),
    ]
