# Every verb does its own set-up; PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
BIN := .venv/bin
INPUTS := pyproject.toml constraints.txt

.PHONY: help setup check test test-matrix faults demo clean

help: ## Show the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

setup: $(BIN)/.for-dev ## Make .venv with everything a developer needs

check: $(BIN)/.for-dev ## Formatting, lint, types, floors
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

test: $(BIN)/.for-dev ## Unit, integration and one of each fault, on real servers
	sh tests/servers.sh && $(BIN)/python -m pytest -m "not slow"

test-matrix: $(BIN)/.for-dev ## The same on Postgres 14, 16, 17 and with Kafka 3.9 too
	sh tests/servers.sh && WALFERRY_TEST_MATRIX=1 $(BIN)/python -m pytest -m "not slow"
	WALFERRY_TEST_KAFKA_VERSION=3.9.1 $(BIN)/python -m pytest -m "not slow" tests/integration/sinks tests/faults

faults: $(BIN)/.for-dev ## The long and repeated runs
	sh tests/servers.sh && $(BIN)/python -m pytest -m slow

demo: $(BIN)/.for-demo ## Run all of it on a Postgres and a Kafka of its own
	$(BIN)/cdc demo

clean: ## Remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache

$(BIN)/.for-dev: $(INPUTS)
	@sh tests/venv.sh "$(PYTHON)" dev && touch $@

$(BIN)/.for-demo: $(INPUTS)
	@sh tests/venv.sh "$(PYTHON)" demo && touch $@
