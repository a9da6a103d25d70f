# Everything a developer does, from nothing but Python >= 3.11, make and a package index.

PYTHON ?= python3
SEEDS ?= 1000
FIRST ?= 0
WORKLOAD ?=
CYCLES ?= 100
SECONDS ?= 600
KILLS ?= 20
MINUTES ?= 10
CHAOS ?=
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 ))) # tests wait for half of their time

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

# Stamps say what the environment holds, so that a second call costs nothing and a changed lock reinstalls.
RUN_READY := $(VENV)/.run-installed
DEV_READY := $(VENV)/.dev-installed
PACKAGE_READY := $(VENV)/.package-installed

# Tests start a thousand Python processes; without compiled modules on the disk each would compile the package once more.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # two pips in one environment would tread on each other

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(RUN_READY) $(PACKAGE_READY) ## Start a broker on the default ports with its data in ./data
	@exec $(BIN)/goqueue serve --hints

.PHONY: cluster
cluster: $(RUN_READY) $(PACKAGE_READY) ## Start a cluster of three nodes on this machine with its data in ./data/cluster
	@exec $(BIN)/goqueue serve --nodes 3 --data-dir data/cluster --hints

.PHONY: test
test: $(DEV_READY) $(PACKAGE_READY) ## Run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.PHONY: check
check: $(DEV_READY) $(PACKAGE_READY) ## Check format, lint, types, layering, Kafka's schemas, and fuzz for a moment
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/kafka_schemas.py --check
	$(BIN)/python -m pytest tests/unit/test_architecture.py tests/fuzz

.PHONY: sim
sim: $(DEV_READY) $(PACKAGE_READY) ## Simulate whole brokers with faults, SEEDS=1000 of them from FIRST=0, of one WORKLOAD= or all
	$(BIN)/python -m goqueue.sim --seeds $(SEEDS) --first $(FIRST) $(if $(WORKLOAD),--workload $(WORKLOAD))

.PHONY: mutants
mutants: $(DEV_READY) $(PACKAGE_READY) ## Make the mistakes that the simulation must find, also those that take long
	GOQUEUE_ALL_MUTANTS=1 $(BIN)/python -m pytest -n auto tests/sim/test_mutants.py

.PHONY: soak
soak: $(DEV_READY) $(PACKAGE_READY) ## Change a group and kill workers and brokers, CYCLES=50 times for each protocol
	GOQUEUE_SOAK_CYCLES=$(CYCLES) $(BIN)/python -m pytest tests/integration/test_kafka_churn.py \
		tests/integration/test_kafka_exactly_once.py -s --timeout 7200

.PHONY: kill
kill: $(DEV_READY) $(PACKAGE_READY) ## Kill a real broker under load with kill -9, CYCLES=100 times
	GOQUEUE_KILL_CYCLES=$(CYCLES) $(BIN)/python -m pytest tests/integration/test_kill9.py -s --timeout 3600

.PHONY: chaos
chaos: $(DEV_READY) $(PACKAGE_READY) ## Break a real cluster under load in every way for MINUTES=10, and check what its clients saw
	$(BIN)/python -m tests.chaos --seconds $$(( 60 * $(MINUTES) )) $(CHAOS)

.PHONY: pipeline-soak
pipeline-soak: $(DEV_READY) $(PACKAGE_READY) ## Kill broker, driver and executors under a Spark pipeline, KILLS=20 times
	GOQUEUE_PIPELINE_KILLS=$(KILLS) GOQUEUE_PIPELINE_SOAK=1 $(BIN)/python -m pytest -s --timeout 7200 \
		tests/pipeline/test_standalone_cluster.py tests/pipeline/test_interop_connector.py \
		tests/pipeline/test_faults_executors.py tests/pipeline/test_kills_exactly_once.py \
		tests/pipeline/test_cluster_kills.py tests/pipeline/test_declarative_sdp.py tests/pipeline/test_declarative_cli.py \
		tests/pipeline/test_spark_connect_work.py tests/pipeline/test_job_redrive.py tests/pipeline/test_demo.py

.PHONY: variants
variants: $(DEV_READY) $(PACKAGE_READY) ## Break a copy of the queue in one way after another, and see its tests fail
	$(BIN)/python -m scripts.broken_variants

.PHONY: fuzz
fuzz: $(DEV_READY) $(PACKAGE_READY) ## Attack the Kafka listener and the one for nodes for SECONDS=600, and compare the codec with kio's at length
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)
	GOQUEUE_CODEC_EXAMPLES=50 $(BIN)/python -m pytest -n auto --timeout 3600 tests/unit/wire/test_kafka_codec_kio.py

.PHONY: bench
bench: $(DEV_READY) $(PACKAGE_READY) ## Measure throughput and latency, and verify what was written
	$(BIN)/python -m bench

.PHONY: bench-cluster
bench-cluster: $(DEV_READY) $(PACKAGE_READY) ## Measure three nodes beside three of Apache Kafka: the cluster's lines of `make bench` alone
	$(BIN)/python -m bench $(patsubst %,--only cluster.%,throughput latency failover failover.default catch_up rebalance start idle)

.PHONY: scale
scale: $(DEV_READY) $(PACKAGE_READY) ## Measure the control plane of up to 100 nodes and 100,000 partitions, and write docs/scale.md
	$(BIN)/python -m bench.control --docs

.PHONY: demo
demo: $(DEV_READY) $(PACKAGE_READY) ## Show broker, queue and Spark at work on a shop's orders, and write a page of plots
	@$(BIN)/python -m demo

.PHONY: docs
docs: $(DEV_READY) $(PACKAGE_READY) ## Regenerate what the docs say of settings, APIs and options from what the code defines
	$(BIN)/python -m goqueue.cli.config_docs docs/config.md
	$(BIN)/python -m goqueue.cli.kafka_docs docs/kafka.md
	$(BIN)/python -m goqueue.cli.pipeline_docs docs/pipeline

.PHONY: schemas
schemas: $(DEV_READY) $(PACKAGE_READY) ## Regenerate the layouts of Kafka's messages from kio
	$(BIN)/python scripts/kafka_schemas.py

.PHONY: fmt
fmt: $(DEV_READY) ## Format the code and repair what lint can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lock
lock: | $(BIN)/python ## Pin the newest allowed version of every dependency, with hashes
	@$(PIP) install uv
	$(COMPILE) --upgrade pyproject.toml --output-file requirements/run.lock
	$(COMPILE) --upgrade pyproject.toml --extra dev --output-file requirements/dev.lock

.PHONY: clean
clean: ## Remove the environment, caches and build products; ./data stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/goqueue.egg-info
	rm -f src/goqueue/log/_kernel*.so src/goqueue/log/_columns*.so
	find src tests bench demo -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { \
		echo "$(PYTHON) was not found; install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$$($(PYTHON) -V) is too old; install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
		echo "$(PYTHON) has no venv module; install it (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUN_READY): requirements/run.lock | $(BIN)/python
	@echo "installing $<"
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

$(DEV_READY): requirements/dev.lock | $(BIN)/python
	@echo "installing $<"
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

$(PACKAGE_READY): pyproject.toml setup.py $(wildcard src/goqueue/log/_*.c src/goqueue/log/_*.h) | $(BIN)/python
	@echo "installing goqueue from src"
	@$(PIP) install --no-deps --editable .
	@touch $@
