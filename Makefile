# Everything needs only python3 (3.11 or later) and make; the environment is made here, from the lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check soak properties chaos bench lock clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(READY)  ## a plan replaced while its query runs on Spark: make demo ARGS="--strategy gen-mig --no-spark"
	$(BIN)/midstream demo $(ARGS)

test: check  ## lint, types, import contracts and all tests (about 12 minutes on 2 cores)
	$(BIN)/python -m pytest -q -n 2

check: $(READY)  ## lint, types and import contracts only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(READY)  ## random migrations on all cores, judged by DuckDB and a brute force, failures shrunk: make soak MINUTES=60 SEED=1
	$(BIN)/python -m tests.property.soak --minutes $(or $(MINUTES),5) --seed "$(SEED)"

properties: $(READY)  ## the property tests with many random examples: make properties EXAMPLES=5000
	MIDSTREAM_SOAK=1 MIDSTREAM_EXAMPLES=$(or $(EXAMPLES),2000) $(BIN)/python -m pytest -q -n 2 tests/property

chaos: $(READY)  ## migrating queries on Spark whose processes are killed, joins and aggregates: make chaos KILLS=40
	$(BIN)/python tests/spark/chaos.py --query joins --where cluster --kills $(or $(KILLS),21)
	$(BIN)/python tests/spark/chaos.py --query joins --where local --kills $(or $(KILLS),21)
	$(BIN)/python tests/spark/chaos.py --query aggregates --where cluster --kills $(or $(KILLS),21)
	$(BIN)/python tests/spark/chaos.py --query aggregates --where local --kills $(or $(KILLS),21)

bench: $(READY)  ## the benchmarks; results go to benchmarks/results
	$(BIN)/python -m benchmarks

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("midstream needs Python 3.11 or later") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

lock:  ## choose the newest versions of everything anew
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install -q --disable-pip-version-check -r requirements.in
	$(VENV)-lock/bin/python -m pip freeze --exclude-editable > requirements.lock
	rm -rf $(VENV)-lock

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
