# Every target sets up what it needs; a fresh machine needs Python 3.11 or 3.12, a C compiler and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := flexfloor megatron_patches recipes tools tests

.PHONY: setup demo test lint types tests test-slow bench-rollout test-gpu docs wheel clean

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: setup ## a GRPO run of a small MoE on four CPU ranks, ending in a table and a picture
	$(BIN)/python tools/demo.py

test: lint types tests ## everything that CI runs

lint: setup
	$(BIN)/ruff format --check --quiet $(SOURCES)
	$(BIN)/ruff check --quiet $(SOURCES)

types: setup
	$(BIN)/mypy --no-error-summary flexfloor megatron_patches recipes

tests: setup
	$(BIN)/python -m pytest

test-slow: setup ## tests of more than a minute each
	$(BIN)/python -m pytest -m slow

test-gpu: setup ## tests that need a CUDA device; fails where there is none
	$(BIN)/python -m pytest -m gpu tests/gpu

bench-rollout: setup ## decode speed over Hugging Face generate, same weights
	$(BIN)/python tools/bench_rollout.py

docs: setup ## regenerate docs/patches.md
	$(BIN)/python tools/make_patch_docs.py

wheel: setup ## dist/flexfloor-*.whl, which holds all that a run needs
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info runs
