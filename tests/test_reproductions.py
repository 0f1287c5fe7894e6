"""What the experiments of ``notebooks/reproductions`` share."""

import json
import sys

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


def test_a_power_is_fitted_to_the_errors_that_can_be_seen(shared):
    seen = {h: (-3 * h**2, 0.01 * h**2) for h in (0.1, 0.2, 0.4)}
    np.testing.assert_allclose(shared.power(seen | {0.01: (5.0, 4.0)})[0], 2.0)
    assert np.isnan(shared.power({0.1: (1.0, 0.1), 0.2: (1.0, 0.9)})[0])
