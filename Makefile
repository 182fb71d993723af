PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# constraints.txt keeps our own machines on a CPU build of torch; a user's `pip install ergnn` is free to take another
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: run test coverage test-slow test-gpu lint format bench docs clean help
.DEFAULT_GOAL := help

run: $(VENV)/.installed  ## set up, train ER-GAT with influence maximization on Cora, print the table
	$(BIN)/ergnn run cora --backbone gat --method replay --selector im --seeds 5

test: $(VENV)/.test  ## set up, run the test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

coverage: $(VENV)/.test  ## run the test suite with branch coverage, which takes half as long again
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

test-slow: $(VENV)/.test  ## run the tests marked slow, and properties with more examples
	$(BIN)/python -m pytest -m 'slow or hypothesis' -n 2 --dist worksteal --hypothesis-profile thorough

test-gpu: $(VENV)/.test  ## run the tests marked gpu
	$(BIN)/python -m pytest -m gpu tests/gpu

lint: $(VENV)/.lint  ## run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed  ## measure speed and memory, compared with plain PyG
	$(BIN)/python -m benchmarks --threads 1,2 --compare benchmarks/cpu.json

docs: $(VENV)/.docs  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean:  ## remove everything that the other targets created
	rm -rf $(VENV) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) --group test
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(PIP) --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --group docs
	@touch $@
