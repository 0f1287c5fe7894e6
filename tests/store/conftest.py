"""Runs that are sampled once for all tests of this folder."""

import pytest

from helpers.kept import bits, run


@pytest.fixture(scope="session")
def unbroken():
    return bits(run(None))


@pytest.fixture(scope="session")
def complete(tmp_path_factory):
    """The folder of a run that came to its end, beside other files."""
    path = tmp_path_factory.mktemp("complete")
    (path / "chain-notes").mkdir()
    (path / "chain-notes.txt").write_text("a good run")
    result = run(path)
    return path, bits(result)
