"""Python in a process of its own, for what this process must not have done or would not survive."""

import subprocess
import sys

from pathlib import Path


def run_python(
    program: str | Path, *arguments: str, timeout: float = 120, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, or to the end of its time.

    Parameters
    ----------
    program : str or Path
        The code, or the file that has it. Processes that the program spawns need a file.
    *arguments : str
        For ``sys.argv``.
    timeout : float
        Seconds.
    env : dict, optional
        The environment; that of this process by default.

    Returns
    -------
    CompletedProcess
        With what was printed as text. The return code is 124 where time was up.
    """
    code = [str(program)] if isinstance(program, Path) else ["-c", program]
    command = [sys.executable, *code, *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=env
        )
    except subprocess.TimeoutExpired as hung:
        said = (hung.stdout or b"").decode()
        return subprocess.CompletedProcess(command, 124, said, f"no end after {timeout} s")
