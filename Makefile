# Every verb does its own set-up. PYTHON=python3.12 chooses another interpreter for a new
# .venv (`make clean` first, where there is one).
PYTHON ?= python3
BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt
# The pure floors: what unit tests alone have to reach, every branch of it.
PURE := cdc/wal/*,cdc/outbox/*,cdc/position/*,cdc/snapshot/bounds.py,cdc/gathering.py,cdc/watermark.py,cdc/lifecycle.py,cdc/finding.py,cdc/status.py,cdc/xid.py,cdc/errors.py,slots/state/*,slots/alarms.py,slots/errors.py,slots/lsn.py

.PHONY: help setup check test test-matrix faults bench bench-peers demo clean

help: ## Show the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

setup: $(BIN)/.for-dev ## Make .venv with everything a developer needs

check: $(BIN)/.for-dev ## Format, lint, types, floors; the pure floors' branches
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/coverage run -m pytest -q tests/unit
	$(BIN)/coverage report --include='$(PURE)' --fail-under=100 --skip-covered --show-missing

test: $(BIN)/.for-dev ## Unit, integration and one of each fault, on real servers
	sh tests/servers.sh && $(BIN)/python -m pytest -m "not slow"

test-matrix: $(BIN)/.for-dev ## The same on Postgres 14, 16, 17 and with Kafka 3.9 too
	sh tests/servers.sh && WALFERRY_TEST_MATRIX=1 $(BIN)/python -m pytest -m "not slow"
	WALFERRY_TEST_KAFKA_VERSION=3.9.1 $(BIN)/python -m pytest -m "not slow" tests/integration/sinks tests/faults

faults: $(BIN)/.for-dev ## The long and repeated runs
	sh tests/servers.sh && $(BIN)/python -m pytest -m slow

bench: $(BIN)/.for-dev ## Measure: catch-up, latency, cost, growth. ARGS=--quick tries it
	sh tests/servers.sh && $(BIN)/python -m bench $(ARGS)

bench-peers: $(BIN)/.for-dev ## Measure Debezium and walbox on the same slots
	sh tests/servers.sh && $(BIN)/python -m bench --only peers $(ARGS)

demo: $(BIN)/.for-demo ## Run all of it on a Postgres and a Kafka of its own
	$(BIN)/cdc demo

clean: ## Remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache

$(BIN)/.for-dev: $(INPUTS)
	@sh tests/venv.sh "$(PYTHON)" dev && touch $@

$(BIN)/.for-demo: $(INPUTS)
	@sh tests/venv.sh "$(PYTHON)" demo && touch $@
