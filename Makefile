.DEFAULT_GOAL := help
.PHONY: help setup demo test study check types lint docs bench rivals lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Reused by `lock` to keep the tool that writes the lock out of the locked environment.
LOCK_VENV := build/lock
# The dependency group `rivals`, by name: `pip install --group` needs a newer pip than Python 3.11 brings.
RIVALS := changepoint-online==1.2.1 river==0.26.1 ruptures==1.1.10

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies and this package

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedgauss needs Python 3.11 or later; $(PYTHON) is" "$$($(PYTHON) --version 2>&1)." \
		"Try: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing $$(grep -c == requirements.lock) locked dependencies (a minute or two) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile --require-hashes -r requirements.lock
	@echo "Installing fedgauss ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@
	@echo "Ready."

demo: setup ## run the demonstration, then the paper's results in short: pages under demo/
	$(BIN)/fedgauss demo
	$(BIN)/fedgauss reproduce --scale quick --out demo/paper

test: setup ## run the tests
	$(BIN)/pytest -n 2 -m "not study"

study: setup ## run the long statistical studies
	$(BIN)/pytest -n 2 -m study

check: types lint docs ## lint, format, types, layers and the documentation; -j 2 for two at a time

types: setup
	$(BIN)/mypy

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

docs: setup ## build the documentation: build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/docs
	@echo "The documentation is build/docs/index.html."

bench: setup ## measure speed, growth and memory; JSON in benchmarks/out
	$(BIN)/python benchmarks/run.py

rivals: setup ## compare the detector with river, changepoint-online and ruptures
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(RIVALS)
	$(BIN)/python benchmarks/rivals.py

lock: ## choose versions afresh and write requirements.lock
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --disable-pip-version-check --quiet uv
	$(LOCK_VENV)/bin/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
		--fork-strategy fewest --generate-hashes --upgrade --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --quiet --output-file requirements.lock

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist demo benchmarks/out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
