# One door to this project: every target makes what it needs. PYTHON chooses the interpreter, VENV the environment.

VENV ?= .venv
BIN := $(VENV)/bin
PROBE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$candidate" -c '$(PROBE)' >/dev/null 2>&1 && { echo "$$candidate"; break; }; done)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST_ARGS ?=
CHAOS_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check fix bench chaos

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo-installed ## run the example application (DATABASE_URL chooses its database)
	$(BIN)/python -m examples.accounts.demo

test: $(VENV)/.dev-installed ## run every test, with coverage (PYTEST_ARGS are passed on)
	$(BIN)/python -m pytest --numprocesses=3 --dist=worksteal --cov --cov-report=term $(PYTEST_ARGS)

check: $(VENV)/.dev-installed ## lint, formatting, types, layers: what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/.dev-installed ## repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev-installed ## run the benchmarks
	$(BIN)/python -m bench

chaos: $(VENV)/.dev-installed ## break things under load, and check every job (CHAOS_ARGS are passed on)
	$(BIN)/python -m chaos $(CHAOS_ARGS)

$(VENV)/.dev-installed: setup.cfg pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev,demo]'
	@touch $(VENV)/.demo-installed $@

$(VENV)/.demo-installed: setup.cfg pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[demo]'
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 with venv found; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
