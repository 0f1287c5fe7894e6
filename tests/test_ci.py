"""What CI runs passes only where all of it has run."""

import os
import subprocess

from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no bash")

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"

MAKE = """#!/bin/sh
echo "ran $1"
case $1 in
    "$HANGS") exec sleep 60 ;;
    "$FAILS") exit 2 ;;
esac
"""


@pytest.fixture
def ci(tmp_path):
    if not SCRIPT.exists():
        pytest.skip("needs the folder .ci, which is not part of a source distribution")
    make = tmp_path / "make"
    make.write_text(MAKE, encoding="utf-8")
    make.chmod(0o755)

    def run(**environment):
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        unset = {"HANGS": "", "FAILS": ""}
        done = subprocess.run(
            [SCRIPT], capture_output=True, text=True, timeout=30, check=False,
            env={**os.environ, **unset, **environment, "PATH": path},
        )  # fmt: skip
        ran = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ran ")]
        last = (done.stdout + done.stderr).splitlines()[-1]
        return done.returncode, ran, last

    return run


def test_all_is_run_and_the_last_line_says_so(ci):
    code, ran, last = ci()
    assert code == 0
    parts = {
        "lint", "types", "test", "test-lowest", "package", "docs", "run-notebooks", "slow",
        "coverage",
    }  # fmt: skip
    assert parts == set(ran)
    assert last.startswith("Passed")
    assert last.endswith("nothing left out: " + " ".join(ran))


def test_slow_tests_that_are_cut_off_fail(ci):
    code, ran, last = ci(HANGS="slow", CI_SECONDS="1")
    assert code != 0
    assert ran[-1] == "slow"
    assert last.startswith("FAILED: make slow cut off after ")


def test_what_is_left_out_after_a_failure_is_named(ci):
    code, ran, last = ci(FAILS="test")
    assert code != 0
    assert ran == ["lint", "types", "test"]
    assert "make test failed" in last
    not_run = "test-lowest package docs run-notebooks slow coverage"
    assert last.endswith(f"Passed: lint types. Not run: {not_run}.")
