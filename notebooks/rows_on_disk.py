# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Rows from disk, and a run that is killed
#
# This page shows two features for long runs. The data stay on disk while a model is
# sampled. And a run that is killed in the middle continues as if nothing had happened.
# The page is for users of PyMC whose data do not fit into memory, or whose jobs have a
# time limit. It takes two minutes.

# %%
import os
import subprocess
import sys
import tempfile
import time

from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import pymc_sgmcmc as sg

ROWS = 200_000 if os.environ.get("SMALL") else 4_000_000
PART = 100_000

# %% [markdown]
# ## Four million rows
#
# We simulate the rows in parts, so that all of them are never in memory.
# `numpy.lib.format.open_memmap` makes a `.npy` file that can be written in parts. The
# package also reads [zarr and parquet](../large_data).

# %%
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
rng = np.random.default_rng(1)
slopes = np.linspace(-1, 1, 9)

x = np.lib.format.open_memmap(folder / "x.npy", "w+", "float32", (ROWS, 9))
y = np.lib.format.open_memmap(folder / "y.npy", "w+", "float32", (ROWS,))
squares, products = np.zeros((9, 9)), np.zeros(9)
for start in range(0, ROWS, PART):
    part = rng.normal(size=(PART, 9)).astype("float32")
    seen = (part @ slopes + rng.normal(size=PART)).astype("float32")
    x[start : start + PART], y[start : start + PART] = part, seen
    # Enough for the exact posterior, against which the draws are checked below
    squares += part.T.astype(float) @ part
    products += part.T.astype(float) @ seen
del x, y

for path in sorted(folder.glob("*.npy")):
    print(f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB")

# %% [markdown]
# ## The model
#
# `sg.on_disk` stands for the rows of a file. Nothing is read when the model is written.
# During sampling a thread reads the batches of the next updates. The model is in a file
# of its own, because a second program will use it below.

# %%
program = f"""
import sys
import pymc as pm
import pymc_sgmcmc as sg

def model():
    x, y = sg.on_disk({str(folder / "x.npy")!r}), sg.on_disk({str(folder / "y.npy")!r})
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=9)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", x @ beta, sigma, observed=y)
    return model

def sample(step, draws=2000):
    return pm.sample(
        draws, step=step, chains=2, cores=1, random_seed=1, progressbar=False
    )

if __name__ == "__main__":
    with model():
        sample(sg.checkpoint(sg.MSGNHT(), sys.argv[1], every=0.2))
"""
(folder / "regression.py").write_text(program)
sys.path.append(str(folder))
import regression

start = time.perf_counter()
with regression.model():
    unbroken = regression.sample(sg.MSGNHT())
print(f"{time.perf_counter() - start:.0f} s")

# %% [markdown]
# ## Is it right?
#
# Compared with four million rows the prior is flat, so the posterior of the slopes is
# that of least squares. The table has the errors of the means in posterior sds, and the
# sds divided by the exact ones.

# %%
exact = np.linalg.solve(squares, products)
sd = np.sqrt(np.diag(np.linalg.inv(squares)))
found = unbroken.posterior["beta"]
table = az.summary(unbroken, var_names="beta", kind="diagnostics")
table["error of mean"] = (found.mean(("chain", "draw")).values - exact) / sd
table["sd over exact"] = found.std(("chain", "draw")).values / sd
table.round(2)

# %% [markdown]
# ## Killed
#
# `sg.checkpoint` around the step method keeps the chains in a folder. Another process
# now samples the same model. We kill it a moment after it has kept its first draws.
# (The signal is SIGKILL, which no program can catch to tidy up.)

# %%
store = folder / "store"
process = subprocess.Popen(
    [sys.executable, str(folder / "regression.py"), str(store)],
    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)


def kept():
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())


# The state of a chain alone takes more
while process.poll() is None and kept() < 50_000:
    time.sleep(0.1)
time.sleep(0.4)
process.kill()
print(f"The process ended by signal {-process.wait()}; {kept() / 1e3:.0f} kB are kept.")

# %% [markdown]
# ## And resumed
#
# We make the same call again, here in the notebook. Kept draws are read, not computed
# again. The log says where each chain begins.

# %%
start = time.perf_counter()
with regression.model():
    resumed = regression.sample(sg.checkpoint(sg.MSGNHT(), store))
print(f"{time.perf_counter() - start:.0f} s")

# %% [markdown]
# The draws are those of the run that was never killed, bit for bit:

# %%
same = {
    name: bool((resumed.posterior[name] == unbroken.posterior[name]).all())
    for name in ("beta", "sigma")
}
pd.Series(same, name="same draws").to_frame()

# %%
figure, axis = plt.subplots(figsize=(10, 3), layout="constrained")
axis.set(xlabel="draw", ylabel="first slope")
for name, result, width in (("unbroken", unbroken, 3), ("resumed", resumed, 1)):
    color = {"unbroken": "#e69f00", "resumed": "#0072b2"}[name]
    draws = result.posterior["beta"][0, :, 0]
    axis.plot(draws, linewidth=width, color=color, label=name)
legend = axis.legend()

# %%
temporary.cleanup()

# %% [markdown]
# For more draws pass a larger `draws=` with the same folder. The first draws stay the
# same. [Long runs](../long_runs) says what is lost when a run is killed, and what
# keeping the chains costs. [Data larger than memory](../large_data) says how to shuffle
# rows that are in a bad order.
