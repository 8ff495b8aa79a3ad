# Every target works on a fresh clone: what it needs is installed first, from requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK_VENV := .lock-venv
UV_VERSION := 0.13.7

# Spark starts many Python processes; parsing every package anew in each takes more time than the tests do.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help env reference site test thorough with-spark without-spark soak lint format run bench lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP) ## Create .venv and install the locked dependencies and afspark

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "afspark needs Python 3.11 or later with the venv module; $(PYTHON) is not: try 'make PYTHON=python3.12 $(MAKECMDGOALS)'" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# More processes than cores, and both halves at once, because tests wait for timeouts and for the JVM. Files with a
# Spark session or the cluster stay whole; what needs neither is dealt out test by test, in fresh processes: they fork,
# and what they fork has to be small.
WITH_SPARK := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/cluster tests/spark
WITHOUT_SPARK := $(BIN)/python -m pytest -n 3 --dist worksteal tests/unit tests/property tests/simulation tests/objects src
HALVES = $(MAKE) --no-print-directory --jobs 2 --output-sync=line with-spark without-spark

# Spark's classes as Java loads them fastest: reading them from the jars is half of what a short query costs.
ARCHIVE := build/spark.jsa
$(ARCHIVE): $(STAMP) tests/archive.py
	PYTHONPATH=src:. $(BIN)/python -m tests.archive

test: env ## Lint, type check, and run the test suite
	@$(MAKE) --no-print-directory --jobs 2 lint $(ARCHIVE)
	@$(HALVES) WHICH='-m "not thorough"'

thorough: lint $(ARCHIVE) ## The same with every variant of the slow tests
	@$(HALVES) WHICH=

with-spark:
	$(WITH_SPARK) $(WHICH)

without-spark:
	$(WITHOUT_SPARK) $(WHICH)

soak: env ## 100,000 simulated schedules, a hundred seeded runs of pushed streams with kills, floods and fuzzing
	PYTHONPATH=src:. $(BIN)/python -m tests.simulation --pushed --schedules 100000
	PYTHONPATH=src:. $(BIN)/python -m tests.soak --seeds 0-99
	PYTHONPATH=src:. $(BIN)/python -m tests.soak.flood --seconds 60
	PYTHONPATH=src:. $(BIN)/python -m tests.soak.fuzz --seconds 120

reference: env ## Write docs/reference.md anew from the docstrings
	PYTHONPATH=src:. $(BIN)/python -m tests.reference

site: env ## Build the pages as a site into build/site
	$(BIN)/mkdocs build --quiet

lint: env ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: env ## Fix what the formatter and the linter can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

run: env ## Run the demo: a stream, a failure, the promised bound and the real error
	$(BIN)/afspark demo

bench: env ## Run all experiments (hours) and write docs/results.md
	$(BIN)/afspark bench all --out docs/results --page docs/results.md

lock: ## Resolve the dependencies anew and write requirements.lock
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(LOCK_VENV)/bin/uv pip compile --quiet --upgrade --universal --fork-strategy fewest --python-version 3.11 \
		--extra java --group dev --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
		--output-file requirements.lock pyproject.toml

clean: ## Remove the environment, caches and build products
	rm -rf $(VENV) $(LOCK_VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
