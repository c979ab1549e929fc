# Two commands: `make demo` and `make test`. Both set everything up first, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= $(shell nproc)
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-slow lint bench setup system clean

demo: setup
	$(BIN)/python recipes/minimal_loop.py

test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu and not server" -n $$(nproc) --dist loadscope

test-slow: setup
	$(BIN)/python -m pytest -m "slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/coefficients.py

setup: $(READY)

$(READY): pyproject.toml constraints.txt | system
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

# The code grader's sandbox and the browser of the report's tests come from the system's package manager.
system:
	@bash scripts/system_packages.sh

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
