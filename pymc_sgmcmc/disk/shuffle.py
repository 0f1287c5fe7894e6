"""Rows brought into random order once, for data larger than memory."""

from __future__ import annotations

import os
import shutil
import tempfile

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from rich.progress import Progress

from pymc_sgmcmc.checks import a_path
from pymc_sgmcmc.disk.on_disk import opened
from pymc_sgmcmc.disk.source import ArraySource, DiskError, Source, sync

# Bytes of a bucket, which is shuffled in memory, and of rows that are dealt to buckets at once
_BUCKET = 2**26
_PART = 2**25


def shuffle_to_disk(
    arrays: Mapping[str, Any],
    folder: str | os.PathLike[str],
    *,
    seed: int | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    progressbar: bool = True,
) -> dict[str, Path]:
    r"""Write rows in random order, the same for several arrays, as ``.npy`` files.

    Every order is equally likely. The rows are read once in their order and dealt to random
    buckets; each bucket is then shuffled in memory and written [1]_. That takes the data's size
    on disk twice while it runs, about 100 MB of memory however many rows there are, and twice
    the time of copying them. What a call that was killed left in the folder is removed.

    Parameters
    ----------
    arrays : dict
        For each name of a new file a path, as of :func:`on_disk`, or an array. All have the same
        number of rows.
    folder : str or path
        Where the files ``<name>.npy`` are written; it is made if need be. A file that is
        there already is refused.
    seed : int, optional
        The same seed gives the same order of the same arrays. Arrays whose rows belong together go
        into one call: another call may have another order.
    columns : dict, optional
        For names whose path is parquet the columns, as of :func:`on_disk`.
    progressbar : bool, default True
        Whether to show the progress.

    Returns
    -------
    dict
        For each name the path of its file.

    Raises
    ------
    ValueError
        If there are no arrays, if they have different lengths, or if one does not hold numbers.
    TypeError
        If ``arrays`` or ``columns`` are no dict.
    ImportError
        If the package that reads zarr or parquet is not installed.
    FileExistsError
        If a file is there already.
    FileNotFoundError
        If there is nothing at a path.
    DiskError
        If rows cannot be read, or the disk is full: then no file is left.

    References
    ----------
    .. [1] Sanders (1998). Random permutations on distributed, external and hierarchical memory.
       Information Processing Letters 67, 305-309.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_sgmcmc as sg
    >>> folder = getfixture("tmp_path")
    >>> np.save(folder / "x.npy", np.arange(6).reshape(3, 2))
    >>> files = sg.shuffle_to_disk(
    ...     {"x": folder / "x.npy", "y": np.array([0, 2, 4])},
    ...     folder / "shuffled",
    ...     progressbar=False,
    ... )
    >>> x, y = np.load(files["x"]), np.load(files["y"])
    >>> bool(np.all(x[:, 0] == y))
    True
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(
            "arrays must be a dict, such as {'x': 'x.npy', 'y': 'y.npy'}, got "
            f"{type(arrays).__name__}."
        )
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if seed is not None and not (whole and seed >= 0):
        raise ValueError(f"seed must be a whole number of at least 0, such as 1, got {seed!r}.")
    folder = a_path("folder", folder, "a folder, such as 'rows'")
    sources = _sources(arrays, {} if columns is None else columns)
    rows = len(next(iter(sources.values())))
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"'{folder}' is a file. Pass a folder.")
    files = {name: folder / f"{name}.npy" for name in sources}
    for file in files.values():
        if os.path.exists(file):
            raise FileExistsError(
                f"'{file}' is there already. Delete it, or choose another folder."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _scratch(folder) as scratch, Progress(disable=not progressbar) as progress:
            task = progress.add_task("Shuffling to disk", total=2 * rows)
            _shuffle(sources, rows, scratch, seed, lambda n: progress.update(task, advance=n))
            for name, file in files.items():
                # Only whole files have the names that were asked for
                os.replace(scratch / f"{name}.npy", file)
    except OSError as error:
        for file in files.values():
            with suppress(OSError):
                file.unlink()
        size = 2 * rows * sum(source.row_bytes for source in sources.values())
        raise DiskError(
            f"The rows cannot be written to '{folder}' ({error.strerror or error}). What was read "
            f"is as it was, and nothing is left there. Make room for {size / 1e6:.3g} MB, or pass "
            "another folder."
        ) from error
    return files


@contextmanager
def _scratch(folder: Path) -> Generator[Path]:
    """Make a folder that is removed at the end, and remove those of calls that were killed."""
    for lock in folder.glob(".shuffle-*/lock"):
        with suppress(ImportError, OSError), open(lock, "r+", encoding="utf-8") as file:
            _lock(file)
            # The lock of a folder that is being made is empty
            if lock.is_file() and file.read():
                shutil.rmtree(lock.parent, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=".shuffle-", dir=folder))
    try:
        with open(scratch / "lock", "w", encoding="utf-8") as file:
            with suppress(ImportError, OSError):  # without locks what is left stays
                _lock(file)
                print("kept", file=file, flush=True)
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _lock(file: IO[str]) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sources(arrays: Mapping[str, Any], columns: Any) -> dict[str, Source]:
    """Return what is to be shuffled together."""
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a dict, such as {{'x': ['a', 'b']}}, got {columns!r}.")
    for name in columns:
        if not isinstance(arrays.get(name), str | os.PathLike):
            raise ValueError(
                f"columns has '{name}', which is none of the arrays of which there is a path: "
                f"{', '.join(map(str, arrays))}."
            )
    sources = {name: _source(name, array, columns.get(name)) for name, array in arrays.items()}
    if not sources:
        raise ValueError("arrays is empty: pass {'x': 'x.npy', 'y': 'y.npy'}.")
    lengths = {name: len(source) for name, source in sources.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays have different lengths, {lengths}: no rows belong together.")
    return sources


def _source(name: Any, array: Any, columns: str | Sequence[str] | None) -> Source:
    if not isinstance(name, str) or not name or Path(name).name != name or "\0" in name:
        raise ValueError(
            f"{name!r} is no name of a file in the folder. Leave out '{os.sep}', as in 'x'."
        )
    if isinstance(array, str | os.PathLike):
        # The numbers stay as they are stored
        return opened(array, columns=columns).as_stored()
    if np.ma.is_masked(array):
        raise ValueError(
            f"arrays['{name}'] has missing values, of which a file would hold what is below the "
            "mask. Leave these rows out, or fill them in."
        )
    with suppress(ValueError):  # of rows of different lengths
        array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        raise ValueError(f"arrays['{name}'] has rows of different lengths.")
    if array.dtype.kind not in "biuf" or not array.ndim or not array.size:
        raise ValueError(
            f"arrays['{name}'] is no array of numbers with rows: it holds {array.dtype} and has "
            f"shape {array.shape}."
        )
    return ArraySource(array)


def _shuffle(
    sources: Mapping[str, Source],
    rows: int,
    scratch: Path,
    seed: int | None,
    advance: Callable[[int], Any],
) -> None:
    """Deal the rows to buckets, and shuffle each."""
    rng = np.random.default_rng(seed)
    row_bytes = sum(source.row_bytes for source in sources.values())
    buckets = -(-rows * row_bytes // _BUCKET)
    dealt = {name: [scratch / f"{name}.{k}" for k in range(buckets)] for name in sources}
    counts = np.zeros(buckets, dtype=np.int64)
    each = max(1, _PART // row_bytes)
    for start in range(0, rows, each):
        stop = min(start + each, rows)
        which = rng.integers(0, buckets, size=stop - start)
        order = np.argsort(which, kind="stable")
        of_part = np.bincount(which, minlength=buckets)
        ends = np.cumsum(of_part)
        for name, source in sources.items():
            part = source.rows(start, stop)[order]
            for k in np.flatnonzero(of_part).tolist():
                with open(dealt[name][k], "ab") as file:
                    file.write(part[ends[k] - of_part[k] : ends[k]].tobytes())
        counts += of_part
        advance(stop - start)
    with ExitStack() as stack:
        outs = {
            name: stack.enter_context(_begun(scratch / f"{name}.npy", source))
            for name, source in sources.items()
        }
        for k, count in enumerate(counts.tolist()):
            order = rng.permutation(count)
            for name, source in sources.items():
                if count:
                    part = np.fromfile(dealt[name][k], dtype=source.dtype)
                    outs[name].write(part.reshape(count, *source.shape[1:])[order].tobytes())
                    dealt[name][k].unlink()
            advance(count)
        for out in outs.values():
            out.flush()
            sync(out.fileno())


def _begun(path: Path, source: Source) -> Any:
    """Return an open .npy file of which the header is written."""
    file = open(path, "wb")
    np.lib.format.write_array_header_1_0(
        file,
        {
            "descr": np.lib.format.dtype_to_descr(source.dtype),
            "fortran_order": False,
            "shape": source.shape,
        },
    )
    return file
