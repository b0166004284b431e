# Every target makes its own environment: Python >= 3.11 is all a machine needs.
#   make demo PYTHON=python3.12     another interpreter
#   make test ARGS="-k kernels"     more options for pytest
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Test processes fill the cores: BLAS threads beside them would only contend.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1
# Tests start dozens of processes, which need not compile the package each, whatever was set.
export PYTHONDONTWRITEBYTECODE :=
# Four processes on two cores, as tests wait for clusters.  In the order of tests/conftest.py: files
# that wait longest come first, and the many short doctests last, which evens out the processes.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest $(PARALLEL)

# Methods that changed since then, by default within the last day, are tested with their whole contract.
BASE ?= $(shell { git rev-list -1 --before=$$(($$(git show -s --format=%ct) - 86400)) HEAD; } 2>/dev/null)

LOWEST := .venv-lowest
# Quick tests: mathematics, methods, stores, sources and estimators, without clusters to speak of.
QUICK := tests/maths tests/models tests/data/test_io.py tests/data/test_convert.py \
  tests/data/test_plain_lines.py tests/data/test_labelled_stores.py tests/estimators/test_estimators.py
# Those of them that lean most on other packages, for a minute or two with the newest ones.
NEWEST := $(filter tests/data/% tests/estimators/%,$(QUICK))
PYTHONS := 3.14 3.13 3.12 3.11
# The interpreter of a version: on PATH, or of pyenv, whose commands run only where it is chosen.
FIND = for each in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python$$version; \
  do $$each -c '' 2>/dev/null && echo $$each && break; done
WITH = $(MAKE) .venv-$$version/.installed PYTHON=$$found && \
  $(ONE_THREAD) .venv-$$version/bin/python -m pytest $(PARALLEL)

.PHONY: install demo test test-slow test-lowest test-newest test-pythons lint format bench bench-quick docs package clean

install: $(VENV)/.installed

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Error: daskgp needs Python 3.11 or later; name one with PYTHON=python3.x" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Error: $(PYTHON) cannot make a virtual environment; install its venv module" >&2; exit 1; }

# Installed again only when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[dev]'
	@# Data of a tutorial; what the package needs to run would hold SciPy back.
	$(PIP) install --quiet --no-deps 'scikit-gstat>=1.0.20'
	@touch $@

$(VENV)/.installed-bench: pyproject.toml $(VENV)/.installed
	$(PIP) install --quiet --editable '.[bench]'
	@touch $@

# Without what tests and documentation need, which is most of it.
$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[io,plot]'
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/python workflows/demo.py

# One process compiles what all share while they collect the tests, not each of them.
test: $(VENV)/.installed
	@$(BIN)/python -m daskgp.models.markov.ready & \
	  $(PYTEST) --changed-since "$(BASE)" $(ARGS)

test-slow: $(VENV)/.installed
	$(PYTEST) -m slow $(ARGS)

# The lowest versions that pyproject.toml allows of what the package itself names.
$(LOWEST)/.installed: pyproject.toml
	@$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST)/bin/python \
	  --extra io --extra plot --extra test --output-file $(LOWEST)/requirements.txt pyproject.toml
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python \
	  --requirement $(LOWEST)/requirements.txt
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	@touch $@

test-lowest: $(LOWEST)/.installed
	$(ONE_THREAD) $(LOWEST)/bin/python -m pytest $(PARALLEL) $(QUICK) $(ARGS)

# Another Python with the newest versions of what tests need; pip would take minutes.
.venv-3.%/.installed: pyproject.toml
	@$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet uv
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --editable '.[io,plot,test]'
	@touch $@

# The newest Python that this machine has, with the newest packages, where it is newer than $(PYTHON).
test-newest:
	@for version in $(PYTHONS); do \
	  $(PYTHON) -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] >= '$$version')" || break; \
	  found=$$($(FIND)); \
	  test "$$found" || continue; \
	  $(WITH) $(NEWEST) $(ARGS); \
	  exit; \
	done; echo "no Python newer than $(PYTHON) here"

# Every Python that this machine has, each in an environment of its own.
test-pythons:
	@for version in $(PYTHONS); do \
	  found=$$($(FIND)); \
	  test "$$found" || { echo "no python$$version here"; continue; }; \
	  $(WITH) $(QUICK) $(ARGS) || exit; \
	done

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench
	$(BIN)/python workflows/benchmarks/speed.py
	$(BIN)/python workflows/benchmarks/scale.py
	$(BIN)/python workflows/benchmarks/lma.py

# Accuracy against time of methods and peers on two generated sets; ten minutes.
bench-quick: $(VENV)/.installed-bench
	@mkdir -p build
	$(BIN)/python workflows/benchmarks/defaults.py --rows 4000 --sets friedman,heteroscedastic \
	  --methods lma,sgpr,svgp,exact,experts,gpboost,trees --threads 1 --figure build/quick.png
	@echo "figure: build/quick.png"

docs: $(VENV)/.installed
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# A wheel and a source archive, checked and installed where nothing else is.
package: $(VENV)/.installed
	rm -rf dist .venv-package
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/python -m pip install --quiet dist/*.whl
	cd dist && ../.venv-package/bin/daskgp --version && ../.venv-package/bin/daskgp workflow

clean:
	rm -rf build dist .venv-package docs/_build demo_output .pytest_cache .mypy_cache .ruff_cache \
	  .import_linter_cache .hypothesis dask-worker-space
	find daskgp tests workflows examples -name __pycache__ -type d -exec rm -rf {} +
