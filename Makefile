# make demo | test | check | bench | real-llm: each sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench real-llm format clean

demo: .venv/run
	$(BIN)/harness run scenarios/demo.toml

test: check .venv/servers
	$(BIN)/pytest -q

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy harness
	$(BIN)/lint-imports

bench: .venv/dev
	@$(BIN)/python benchmarks/bench.py

# A real model on this machine's CPU (docs/real-llm.md). Not part of `test`: at first it compiles a server, 16 minutes.
real-llm: .venv/run
	$(BIN)/python benchmarks/real_llm.py

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "harness needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "no venv module: apt-get install python3-venv" >&2; exit 1; }

.venv/run: .venv/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/dev: .venv/run
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.venv/servers: .venv/dev tests/servers/install tests/servers/package-lock.json
	@tests/servers/install .venv
	@touch $@

clean:
	rm -rf .venv runs
