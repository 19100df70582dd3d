# Needs only python3 (3.11 or later) and make; the environment is created here, from the lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Dozens of processes load the same files: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check soak soak-deployment properties chaos bench lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 17

demo: $(READY)  ## a query on Spark that replaces its own plan: make demo ARGS="--no-spark", ARGS="--no-adapt --strategy gen-mig"
	$(BIN)/midstream demo $(ARGS)

test: check  ## lint, types, import contracts and all tests (10 to 20 minutes on 2 cores, as busy as they are)
	$(BIN)/python -m pytest -q -n 3

check: $(READY)  ## lint, types and import contracts only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(READY)  ## random migrations on all cores, checked against DuckDB and a brute-force evaluation, failures shrunk: make soak MINUTES=60 CASES=100000 SEED=1
	$(BIN)/python -m tests.property.soak --minutes $(or $(MINUTES),5) --seed "$(SEED)" $(if $(CASES),--cases $(CASES))

soak-deployment: $(READY)  ## random deployments with faults in two processes, checked in the same way: make soak-deployment CASES=10000 MINUTES=60 SEED=1
	$(BIN)/python -m tests.deployment.soak --minutes $(or $(MINUTES),60) --seed "$(SEED)" --cases $(or $(CASES),10000)

# The files that say how many examples they try by tests/examples.py: few in make test, as many as you like here.
PROPERTIES := tests/deployment/test_placement_amendment_random.py tests/deployment/test_deployment_cases.py tests/property \
	tests/planning/test_partitioning.py tests/runtime/test_durable_cell.py \
	tests/spark/test_sliding_cells.py tests/testing/test_brute_force_random.py tests/testing/test_oracle.py

properties: $(READY)  ## the property tests with many random examples: make properties EXAMPLES=5000
	MIDSTREAM_SOAK=1 MIDSTREAM_EXAMPLES=$(or $(EXAMPLES),2000) $(BIN)/python -m pytest -q -n 2 $(PROPERTIES)

chaos: $(READY)  ## kill processes of migrating queries, and of deployments, on Spark: make chaos KILLS=40
	$(BIN)/python -m tests.spark.chaos --query joins --where cluster --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query joins --where local --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query aggregates --where cluster --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query aggregates --where local --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query joins --where cluster --just-in-time --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query joins --where local --adapt auto --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query joins --where cluster --sink delta --source files --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query joins --where local --sink delta --source files --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos --query joins --where local --cells 1 --sink delta --source files --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.kafka.chaos --kills $(or $(KILLS),21)
	$(BIN)/python -m tests.spark.chaos_sites --kills $(or $(KILLS),21)

bench: $(READY)  ## run the benchmarks; results go to benchmarks/results
	$(BIN)/python -m benchmarks

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("midstream needs Python 3.11 or later") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

lock:  ## update the lock to the newest versions
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install -q --disable-pip-version-check -r requirements.in
	$(VENV)-lock/bin/python -m pip freeze --exclude-editable > requirements.lock
	rm -rf $(VENV)-lock

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .peers .kafka .moto .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
