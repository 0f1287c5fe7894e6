"""Posteriors of posteriordb for ``SUITE``: regressions.

Priors are flat where Stan's programs have none. Data that several posteriors share lie in the
folder of one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm

from . import posteriordb
from .posteriordb import data, of_suite

KIDIQ = "kidiq_with_mom_work-kidscore_interaction_z"
MESQUITE = "mesquite-logmesquite_logvas"
EARNINGS = "earnings-earn_height"
WELLS = "wells_data-wells_dist"


def design(*columns: Any) -> np.ndarray:
    """Return a matrix of ones and these columns."""
    return np.column_stack([np.ones(len(columns[0])), *columns])


def linear(y: np.ndarray, *columns: Any, scale: float | None = None) -> None:
    """Regress ``y`` on an intercept and columns, as :func:`posteriordb.linear`."""
    posteriordb.linear("y", y, design(*columns), scale)


def logistic(y: np.ndarray, *columns: Any) -> None:
    """Regress a binary ``y`` on columns."""
    x = np.column_stack(columns)
    alpha = pm.Flat("alpha")
    beta = pm.Flat("beta", shape=x.shape[1])
    pm.Bernoulli("y", logit_p=alpha + x @ beta, observed=y)


def interaction(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return two columns and their product."""
    return a, b, a * b


@of_suite("kidiq-kidscore_momhs")
def kidscore_momhs() -> None:
    """Test scores of children on their mothers' schooling."""
    d = data(KIDIQ)
    linear(d["kid_score"], d["mom_hs"], scale=2.5)


@of_suite("kidiq-kidscore_momiq")
def kidscore_momiq() -> None:
    """Test scores of children on their mothers' IQ."""
    d = data(KIDIQ)
    linear(d["kid_score"], d["mom_iq"], scale=2.5)


@of_suite("kidiq-kidscore_momhsiq")
def kidscore_momhsiq() -> None:
    """Test scores of children on their mothers' schooling and IQ."""
    d = data(KIDIQ)
    linear(d["kid_score"], d["mom_hs"], d["mom_iq"], scale=2.5)


@of_suite("kidiq-kidscore_interaction")
def kidscore_interaction() -> None:
    """Test scores of children on their mothers' schooling and IQ, with interaction, as they are."""
    d = data(KIDIQ)
    linear(d["kid_score"], *interaction(d["mom_hs"], d["mom_iq"]), scale=2.5)


@of_suite("kidiq_with_mom_work-kidscore_interaction_c")
def kidscore_interaction_c() -> None:
    """Test scores of children on their mothers' schooling and IQ, less their means."""
    d = data(KIDIQ)
    hs, iq = d["mom_hs"], d["mom_iq"]
    linear(d["kid_score"], *interaction(hs - hs.mean(), iq - iq.mean()))


@of_suite("kidiq_with_mom_work-kidscore_interaction_c2")
def kidscore_interaction_c2() -> None:
    """Test scores of children on their mothers' schooling and IQ, less 1/2 and 100."""
    d = data(KIDIQ)
    linear(d["kid_score"], *interaction(d["mom_hs"] - 0.5, d["mom_iq"] - 100))


@of_suite("kidiq_with_mom_work-kidscore_mom_work")
def kidscore_mom_work() -> None:
    """Test scores of children on four levels of their mothers' work."""
    d = data(KIDIQ)
    linear(d["kid_score"], d["mom_work"][:, None] == [2, 3, 4])


@of_suite("mesquite-mesquite")
def mesquite() -> None:
    """Leaf mass of mesquite bushes on sizes in metres: noise of hundreds of grams."""
    d = data(MESQUITE)
    sizes = "diam1", "diam2", "canopy_height", "total_height", "density", "group"
    linear(d["weight"], *(d[key] for key in sizes))


def log_sizes() -> dict[str, np.ndarray]:
    """Return what the models of mesquite bushes in logarithms take."""
    d = data(MESQUITE)
    log = {key: np.log(value) for key, value in d.items() if key not in ("N", "group")}
    area = log["diam1"] + log["diam2"]
    volume = area + log["canopy_height"]
    shape = log["diam1"] - log["diam2"]
    return log | {"area": area, "volume": volume, "shape": shape, "group": d["group"]}


@of_suite("mesquite-logmesquite")
def logmesquite() -> None:
    """Leaf mass of mesquite bushes on all sizes, in logarithms."""
    d = log_sizes()
    sizes = "diam1", "diam2", "canopy_height", "total_height", "density", "group"
    linear(d["weight"], *(d[key] for key in sizes))


@of_suite("mesquite-logmesquite_logvolume")
def logmesquite_logvolume() -> None:
    """Leaf mass of mesquite bushes on their volume, in logarithms."""
    d = log_sizes()
    linear(d["weight"], d["volume"])


@of_suite("mesquite-logmesquite_logva")
def logmesquite_logva() -> None:
    """Leaf mass of mesquite bushes on their volume and area, in logarithms."""
    d = log_sizes()
    linear(d["weight"], d["volume"], d["area"], d["group"])


@of_suite("mesquite-logmesquite_logvash")
def logmesquite_logvash() -> None:
    """Leaf mass of mesquite bushes on volume, area, shape and height, in logarithms."""
    d = log_sizes()
    linear(d["weight"], d["volume"], d["area"], d["shape"], d["total_height"], d["group"])


@of_suite("earnings-earn_height")
def earn_height() -> None:
    """Earnings in dollars on height in inches: the intercept is tens of thousands away."""
    d = data(EARNINGS)
    linear(d["earn"], d["height"])


@of_suite("earnings-log10earn_height")
def log10earn_height() -> None:
    """Decimal logarithms of earnings on height."""
    d = data(EARNINGS)
    linear(np.log10(d["earn"]), d["height"])


@of_suite("earnings-logearn_height")
def logearn_height() -> None:
    """Logarithms of earnings on height."""
    d = data(EARNINGS)
    linear(np.log(d["earn"]), d["height"])


@of_suite("earnings-logearn_height_male")
def logearn_height_male() -> None:
    """Logarithms of earnings on height and sex."""
    d = data(EARNINGS)
    linear(np.log(d["earn"]), d["height"], d["male"])


@of_suite("earnings-logearn_logheight_male")
def logearn_logheight_male() -> None:
    """Logarithms of earnings on the logarithm of height and sex."""
    d = data(EARNINGS)
    linear(np.log(d["earn"]), np.log(d["height"]), d["male"])


@of_suite("earnings-logearn_interaction")
def logearn_interaction() -> None:
    """Logarithms of earnings on height and sex, with interaction: correlations above 0.99."""
    d = data(EARNINGS)
    linear(np.log(d["earn"]), *interaction(d["height"], d["male"]))


@of_suite("earnings-logearn_interaction_z")
def logearn_interaction_z() -> None:
    """Logarithms of earnings on standardised height and sex, with interaction."""
    d = data(EARNINGS)
    height = d["height"]
    z = (height - height.mean()) / height.std(ddof=1)
    linear(np.log(d["earn"]), *interaction(z, d["male"]))


@of_suite("sblrc-blr")
def sblrc() -> None:
    """Linear regression with correlated coefficients."""
    posteriordb.five_slopes("sblrc-blr")


@of_suite("wells_data-wells_dist")
def wells_dist() -> None:
    """Whether a household changes its well, on metres to the next: two scales."""
    d = data(WELLS)
    beta = pm.Flat("beta", shape=2)
    pm.Bernoulli("switched", logit_p=design(d["dist"]) @ beta, observed=d["switched"])


@of_suite("wells_data-wells_dist100_model")
def wells_dist100() -> None:
    """Whether a household changes its well, on hundreds of metres to the next."""
    d = data(WELLS)
    logistic(d["switched"], d["dist"] / 100)


@of_suite("wells_data-wells_dist100ars_model")
def wells_dist100ars() -> None:
    """Whether a household changes its well, on distance and arsenic."""
    d = data(WELLS)
    logistic(d["switched"], d["dist"] / 100, d["arsenic"])


@of_suite("wells_data-wells_interaction_c_model")
def wells_interaction_c() -> None:
    """Whether a household changes its well, on centred distance and arsenic, with interaction."""
    d = data(WELLS)
    dist, arsenic = d["dist"] / 100, d["arsenic"]
    logistic(d["switched"], *interaction(dist - dist.mean(), arsenic - arsenic.mean()))


@of_suite("nes_logit_data-nes_logit_model")
def nes_logit() -> None:
    """Votes for Bush or Clinton in 1992 on income."""
    d = data("nes_logit_data-nes_logit_model")
    logistic(d["vote"], d["income"])


@of_suite("sesame_data-sesame_one_pred_a")
def sesame_one_pred_a() -> None:
    """Whether children watch a programme on whether they were encouraged, a linear regression."""
    d = data("sesame_data-sesame_one_pred_a")
    linear(d["watched"], d["encouraged"])


def radon_pooled(name: str) -> None:
    """Return the regression of radon, in logarithms, on the floor."""
    d = data(name)
    alpha = pm.Normal("alpha", 0, 10)
    beta = pm.Normal("beta", 0, 10)
    sigma_y = pm.HalfNormal("sigma_y", 1)
    mu = alpha + beta * d["floor_measure"]
    pm.Normal("log_radon", mu, sigma_y, observed=d["log_radon"])


@of_suite("radon_mn-radon_pooled")
def radon_mn_pooled() -> None:
    """Radon in houses of Minnesota on the floor."""
    radon_pooled("radon_mn-radon_pooled")


@of_suite("radon_all-radon_pooled")
def radon_all_pooled() -> None:
    """Radon in houses of nine states on the floor."""
    radon_pooled("radon_all-radon_pooled")
