# make demo   installs Coterie into .venv and shows a distributed fit, its certificate, its bill and a picture
# make bench  runs Coterie beside its peers and writes docs/benchmarks.md and cluster-benchmarks.md (make bench-quick: minutes; WITH=--resume goes on)
# make test   installs what the tests need into .venv, then checks style, types and behaviour (this is what CI runs)
# make gallery   runs every study in its quick size and redraws docs/gallery.md
# make pages  runs the pages of the documentation and writes the numbers that they print now
# make docs   builds the documentation as a website into site/
# make notebooks   writes the tutorials as notebooks into notebooks/
# make pythons   tests every Python from 3.11 to 3.14 that is installed here, and says which are not
# make sbom   writes sbom.json: what an installed Coterie is made of (CycloneDX)
# make constraints   writes the versions that are installed, once the tests have passed, to constraints.txt
# TESTED=1    with any of them: installs the versions of constraints.txt, with which the tests have passed

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TESTED),--constraint constraints.txt)
BENCH := .venv-bench
PEERS := celer skglm snapml rehline cyanure copt dask-glm decent-bench 'pyspark>=4.0' grpcio 'ray[data]>=2.40'
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# The papers' datasets are looked for beside the checkout unless COTERIE_DATA says otherwise; tests that need them skip without.
COTERIE_DATA ?= $(abspath $(wildcard ../shared/data))
export COTERIE_DATA

.PHONY: demo docs notebooks pages pythons sbom constraints gallery test check test-slow lint types bench bench-quick format clean help

help:
	@grep -E '^# make' Makefile | cut -c3-

demo: $(VENV)/.installed
	$(BIN)/coterie demo

test check: $(VENV)/.installed-dev lint types
	@scripts/debian.sh
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist loadgroup

test-slow: $(VENV)/.installed-dev
	ROTATION=all $(BIN)/pytest -n 2 --dist loadgroup -m slow

bench: $(BENCH)/.installed
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/engine_overhead.py
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/bench.py $(WITH)
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/non_smooth.py
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/small_fits.py
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/on_the_cluster.py --write docs/cluster-benchmarks.md

bench-quick: $(BENCH)/.installed
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/engine_overhead.py
	$(ONE_THREAD) $(BENCH)/bin/python benchmarks/bench.py --quick $(WITH)

gallery: $(VENV)/.installed
	$(BIN)/python -m papers all --quick --gallery docs/gallery -o $(VENV)/studies

pages: $(VENV)/.installed-dev
	$(BIN)/python -m tests.pages

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

notebooks: $(VENV)/.installed
	$(BIN)/python scripts/notebooks.py notebooks

pythons:
	$(PYTHON) scripts/pythons.py $(WITH)

sbom: $(VENV)/.installed
	$(BIN)/python scripts/sbom.py $(EXTRAS) > sbom.json

constraints: $(VENV)/.installed-dev
	@{ head -2 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | grep -v '@'; } > constraints.new
	@mv constraints.new constraints.txt

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Coterie needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Creating the environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade 'pip>=23.1'

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing Coterie (a minute or two, once) ..."
	@$(PIP) --editable '.[tutorials]'
	@touch $@

# Peers live in their own environment; one that does not install is left out, and the benchmark says so.
$(BENCH)/.installed: pyproject.toml
	@echo "Installing Coterie and its peers into $(BENCH) (several minutes, once) ..."
	@$(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	@for peer in $(PEERS); do $(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check $$peer > /dev/null 2>&1 || echo "  $$peer does not install here"; done
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing Coterie and what its tests need (a minute or two, once) ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) $(BENCH) .mypy_cache .ruff_cache .pytest_cache .hypothesis
