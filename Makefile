# `make setup` needs Python 3.11 and nothing else; every other target builds on it.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/.installed
COMPILED := build/compiled
KIT := tests/engine

.DEFAULT_GOAL := help
.PHONY: help setup compiled demo demo-real test test-compiled lint types contracts pytest engines peers clients test-engines test-clients \
  bench bench-quick bench-index bench-contract bench-routing bench-dialects bench-trace \
  chaos fuzz soak lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## .venv with all that demo, tests and benches need
$(STAMP): requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/dev.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

compiled: $(COMPILED)/.built ## the exchange path compiled, as it is deployed; needs a C compiler
$(COMPILED)/.built: $(STAMP) setup.py pyproject.toml $(shell find gateway backends tiering policies deploy -name '*.py')
	rm -rf $(COMPILED) build/wheel build/lib* build/bdist*
	HEADRACE_COMPILE=1 $(PIP) wheel --no-deps --no-build-isolation -w build/wheel .
	$(PIP) install --no-deps --target $(COMPILED) build/wheel/headrace-*.whl
	touch $@

demo: setup ## two simulated pools, the gateway, sample traffic; until Ctrl-C
	$(BIN)/headrace demo

demo-real: setup engines ## the same in front of real vLLM and SGLang on the CPU (about 5 GB)
	$(BIN)/headrace demo --real

test: lint types contracts pytest ## what CI runs

lint: setup ## ruff
	$(BIN)/ruff check .

types: setup ## mypy --strict
	$(BIN)/mypy

contracts: setup ## which package may import which
	$(BIN)/lint-imports

pytest: setup ## unit and wire tests
	$(BIN)/python -m pytest

test-compiled: compiled ## wire tests and 10 000 exchanges against the compiled exchange path
	PYTHONPATH=$(COMPILED) $(BIN)/pytest --import-mode=append tests/wire
	PYTHONPATH=$(COMPILED) $(BIN)/python -m tests.stress.chaos

engines: ## real vLLM and SGLang for the CPU, into $ENGINES_DIR
	$(KIT)/install-vllm.sh
	$(KIT)/install-sglang.sh
	$(KIT)/make_model.py

test-engines: setup engines ## the gateway in front of real engines
	$(BIN)/python -m tests.engine $(BIN)/python -m pytest -m engine -o timeout=300 -rA tests/engine

clients: ## agent frameworks, into $CLIENTS_DIR
	tests/clients/install.sh

test-clients: setup clients ## agent frameworks against the gateway
	$(BIN)/python -m pytest -m clients -rA tests/clients

peers: ## the gateways that the bench compares with, into $PEERS_DIR
	tests/bench/install-peers.sh

bench: setup peers compiled ## cost of the gateway beside other gateways (about 6 minutes)
	$(BIN)/python -m tests.bench.run

bench-quick: setup peers compiled ## one round of the figures that decide
	$(BIN)/python -m tests.bench.run --quick

bench-index: setup ## prefix hashing and index
	$(BIN)/python -m tests.bench.bench_index

bench-contract: setup ## contract filter and adaptation
	$(BIN)/python -m tests.bench.bench_contract

bench-routing: setup peers ## routing policies on recorded traffic, then over HTTP beside other routers
	$(BIN)/python -m tests.bench.bench_routing
	$(BIN)/python -m tests.bench.bench_routing_http

bench-dialects: setup ## translation per chunk and per request
	$(BIN)/python -m tests.bench.bench_dialects

bench-trace: setup ## what telling of one exchange costs
	$(BIN)/python -m tests.bench.bench_trace

chaos: setup ## 10 000 exchanges with every fault mixed in
	$(BIN)/python -m tests.stress.chaos

fuzz: setup ## malformed requests against the listener
	$(BIN)/python -m tests.stress.fuzz

soak: setup ## memory stays flat
	$(BIN)/python -m tests.stress.soak

lock: ## requirements/dev.txt anew, from pyproject.toml
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --disable-pip-version-check --quiet uv
	build/lock/bin/uv pip compile pyproject.toml --extra dev --extra precise --python-version 3.11 --universal \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --output-file requirements/dev.txt

clean: ## caches and build output; .venv stays
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf tests/bench/bin tests/bench/bodies tests/bench/results
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
