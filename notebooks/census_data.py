"""The census data of the examples: who earned more than 50,000 dollars a year in 1994.

32,561 people to learn from and 16,281 to be tested on. Each of 14 attributes of a
person is cut into levels, and each level is one yes-or-no feature (LIBSVM's encoding
``a9a`` of UCI's Adult data, see ``tests/data/README.md``).
"""

from pathlib import Path

import numpy as np
import pandas as pd

FILE = Path(__file__).parents[1] / "tests" / "data" / "a9a.npz"
FIFTHS = "lowest fifth|second fifth|middle fifth|fourth fifth|highest fifth"
LEVELS = {
    "age": FIFTHS,
    "work": "private|self-employed|own company|federal|local|state|without pay|never",
    "census weight": FIFTHS,
    "education": "bachelor|some college|11th|high school|prof. school|"
    "assoc. academic|assoc. vocational|9th|7th-8th|12th|master|1st-4th|10th|doctorate|"
    "5th-6th|preschool",
    "years of education": "1-8|9|10|11-12|13-16",
    "marital status": "married|divorced|never married|separated|widowed|spouse absent|"
    "spouse in armed forces",
    "job": "tech support|craft, repair|other service|sales|manager|professional|"
    "handler, cleaner|machine operator|clerical|farming, fishing|transport|"
    "house servant|protection|military",
    "relationship": "wife|own child|husband|not in family|other relative|unmarried",
    "race": "white|Asian, Pacific|American Indian|other|black",
    "sex": "female|male",
    "capital gain": "no|yes",
    "capital loss": "no|yes",
    "hours a week": "fewest|below 40|about 40|above 40|most",
    "born in": "|".join(f"country {i}" for i in range(1, 42)),
}
LEVELS = {attribute: names.split("|") for attribute, names in LEVELS.items()}
FEATURES = [
    f"{attribute}: {name}" for attribute in LEVELS for name in LEVELS[attribute]
]
ATTRIBUTE = np.array([attribute for attribute in LEVELS for _ in LEVELS[attribute]])


def features(part: str) -> np.ndarray:
    """Return the features of "train" or "test", of shape (people, 123), 0 and 1."""
    with np.load(FILE) as file:
        return np.unpackbits(file[f"X_{part}"], axis=1)[:, : len(FEATURES)]


def rich(part: str) -> np.ndarray:
    """Return who earns more than 50,000 dollars, of shape (people,), 0 and 1."""
    with np.load(FILE) as file:
        return file[f"y_{part}"].astype("int32")


def people(part: str) -> pd.DataFrame:
    """Return a categorical column for each attribute: its levels, and "unknown"."""
    found, columns = features(part), {}
    for attribute, names in LEVELS.items():
        own = found[:, attribute == ATTRIBUTE]
        level = np.where(own.any(axis=1), own.argmax(axis=1), len(names))
        columns[attribute] = pd.Categorical.from_codes(level, [*names, "unknown"])
    return pd.DataFrame(columns)
