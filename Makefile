.DEFAULT_GOAL := help
.PHONY: help setup demo test study check types lint docs readme bench rivals lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed
# Flower holds back typer, click and rich. It has an environment of its own, which takes everything else from $(VENV).
FLOWER := $(VENV)/flower
FLOWER_TESTS := $(wildcard tests/integrations/test_flower*.py) tests/test_cli.py tests/test_docs.py
# Reused by `lock` to keep the tool that writes the lock out of the locked environment.
LOCK_VENV := build/lock
COMPILE := $(LOCK_VENV)/bin/uv pip compile --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet
# The dependency group `rivals`, by name: `pip install --group` needs a newer pip than Python 3.11 brings.
RIVALS := changepoint-online==1.2.1 river==0.26.1 ruptures==1.1.10

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies and this package

$(STAMP): requirements.lock requirements-flower.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedgauss needs Python 3.11 or later; $(PYTHON) is" "$$($(PYTHON) --version 2>&1)." \
		"Try: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing $$(grep -c == requirements.lock) locked dependencies (a minute or two) ..."
	@$(PIP) install --no-compile --require-hashes -r requirements.lock
	@echo "Installing fedgauss ..."
	@$(PIP) install --no-deps --no-build-isolation -e .
	@echo "Installing Flower beside it ..."
	@$(PYTHON) -m venv --without-pip $(FLOWER)
	@$(PIP) --python $(FLOWER)/bin/python install --no-compile --no-deps --require-hashes -r requirements-flower.lock
	@$(BIN)/python -c "import pathlib, sysconfig; print(sysconfig.get_path('purelib'), pathlib.Path('src').resolve(), \
		sep='\n')" > $$($(FLOWER)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/fedgauss.pth
	@touch $@
	@echo "Ready."

demo: setup ## run the demonstration, with the paper's results in short: demo/index.html
	$(BIN)/fedgauss demo --paper

test: setup ## run the tests
	$(BIN)/pytest -n 2 --dist worksteal -m "not study"
	$(FLOWER)/bin/python -m pytest -n 2 --dist worksteal -m "not study" $(FLOWER_TESTS)

study: setup ## run the long statistical studies
	$(BIN)/pytest -n 2 --dist worksteal -m study
	$(FLOWER)/bin/python -m pytest -n 2 --dist worksteal -m study $(FLOWER_TESTS)

check: types lint docs readme ## lint, format, types, layers and the documentation; -j 2 for two at a time

types: setup
	$(BIN)/mypy --python-executable $(FLOWER)/bin/python

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

docs: setup ## build the documentation: build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/docs
	@echo "The documentation is build/docs/index.html."

readme: setup
	$(FLOWER)/bin/python scripts/check_readme.py

bench: setup ## measure speed, growth and memory; JSON in benchmarks/out
	$(BIN)/python benchmarks/run.py

rivals: setup ## compare the detector with river, changepoint-online and ruptures
	$(PIP) install $(RIVALS)
	$(BIN)/python benchmarks/rivals.py

lock: ## choose versions afresh and write requirements.lock and requirements-flower.lock
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --disable-pip-version-check --quiet uv
	$(COMPILE) pyproject.toml --group dev --output-file requirements.lock
	$(COMPILE) --group flower --no-emit-package numpy --output-file requirements-flower.lock

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist demo benchmarks/out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
