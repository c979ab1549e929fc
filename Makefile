# Three commands: `make demo`, `make test` and `make docs`. Each sets up what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export OMP_NUM_THREADS ?= $(shell nproc)
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-numeric test-slow lint bench docs setup setup-dev system clean

# Trains the bundled policy on the built-in task and ends with a report; every run has a folder of its own.
demo: setup
	$(BIN)/delta-rlvr train --output runs/demo-$$(date +%Y%m%d-%H%M%S)

# Every test has one thread: there are as many test processes as cores. Files are taken in their order, so that the engines, which take
# longest, do not come last. Many processes import the package: its compiled files are kept. Then the numeric tests again, under the
# processor's other vector instructions and under two threads.
test: lint
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu and not server" -n $$(env -u OMP_NUM_THREADS nproc) --dist loadscope --no-loadscope-reorder
	$(BIN)/python scripts/numeric_passes.py

# The numeric tests under every pair of vector instructions and thread count.
test-numeric: setup-dev
	$(BIN)/python scripts/numeric_passes.py --all

test-slow: setup-dev
	$(BIN)/python -m pytest -m slow

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What each performance claim of docs/results.md is measured by (the CPU's part of it).
bench: setup-dev
	$(BIN)/python benchmarks/coefficients.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/trl_overhead.py
	$(BIN)/python benchmarks/generation.py
	$(BIN)/python benchmarks/study_step.py
	$(BIN)/python benchmarks/grade_math.py
	$(BIN)/python benchmarks/grade_code.py

# The site, in site/: every warning is an error, a link or an anchor that leads nowhere among them. It has an environment of its own, because
# it needs nothing of what trains.
docs: $(VENV)-docs/.ready
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict

$(VENV)-docs/.ready: pyproject.toml constraints.txt
	test -x $(VENV)-docs/bin/python || $(PYTHON) -m venv $(VENV)-docs
	@echo "installing what builds the site into $(VENV)-docs (a minute, once)"
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' | \
		$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r /dev/stdin
	touch $@

setup: $(VENV)/.ready
setup-dev: $(VENV)/.ready-dev

$(VENV)/.ready: pyproject.toml graders/pyproject.toml constraints.txt | system
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing delta-rlvr and what it trains with into $(VENV) (a few minutes, once)"
	$(PIP) -e ./graders -e ".[train]"
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready evidence/pyproject.toml scripts/verl_requirements.txt | system
	@echo "installing what the tests need"
	$(PIP) -e ./graders -e ".[dev]" -e ./evidence
	$(PIP) --no-deps -r scripts/verl_requirements.txt
	touch $@

# The code grader's sandbox and the browser of the report's tests come from the system's package manager.
system:
	@bash scripts/system_packages.sh

clean:
	rm -rf $(VENV) $(VENV)-docs site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
