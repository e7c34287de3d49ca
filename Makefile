# Morph. `make` alone lists what can be made. Every target sets up what it needs, once.
.DEFAULT_GOAL := help
.PHONY: help setup tour test test-full lint types checkpoint record lab site clean

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(READY)  ## create .venv and install everything (the other targets do this by themselves)

$(READY): pyproject.toml constraints.txt tools/setup.sh
	@sh tools/setup.sh '$(PYTHON)' && touch $@

tour: $(READY)  ## train the fifteen stages small, print the ledger, render Figure 1
	@$(BIN)/morph tour

test: lint types  ## lint, types, and the tests that are quick enough for every change
	$(PYTEST) -m "not slow"

test-full: lint types  ## the same with the slow tests
	$(PYTEST)

lint: $(READY)  ## check the style with ruff
	$(BIN)/ruff check .

types: $(READY)  ## check the types of morph/ with mypy
	$(BIN)/mypy

checkpoint: $(READY)  ## make a small checkpoint, tokenizer included, to try with every command
	@$(BIN)/python tools/make_checkpoint.py

record: $(READY)  ## train the models that the figures show once more (half an hour)
	@$(BIN)/python tools/record.py

lab: $(READY)  ## run the experiments of the lab once more and write docs/lab.md (hours; it goes on where it stopped)
	@$(BIN)/morph lab run all --record --workers $(WORKERS) && $(BIN)/morph lab report --out docs

site: $(READY)  ## make the web pages of all notebooks and figures in site/ (no server, no network)
	@$(BIN)/morph site build

clean:  ## remove caches and build products (.venv and your runs stay)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find morph scenes tests notebooks tools -name __pycache__ -type d -prune -exec rm -rf {} +
