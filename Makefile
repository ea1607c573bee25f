# make demo   installs Coterie into .venv and shows a distributed fit, its certificate, its bill and a picture
# make test   installs what the tests need into .venv, then checks style, types and behaviour (this is what CI runs)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The papers' datasets are looked for beside the checkout unless COTERIE_DATA says otherwise; tests that need them skip without.
COTERIE_DATA ?= $(abspath $(wildcard ../shared/data))
export COTERIE_DATA

.PHONY: demo test check test-slow lint types bench format clean help

help:
	@grep -E '^# make' Makefile | cut -c3-

demo: $(VENV)/.installed
	$(BIN)/coterie demo

test check: $(VENV)/.installed-dev lint types
	$(BIN)/pytest -n 2

test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 -m slow

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/engine_overhead.py

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
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing Coterie and what its tests need (a minute or two, once) ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
