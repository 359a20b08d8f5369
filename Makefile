.DEFAULT_GOAL := help
.PHONY: help setup demo test study check types lint docs readme bench rivals soak wheel trywheel lock audit clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed
# $(call locked,PYTHON,LOCK) installs a lock by uv, in seconds. Where uv cannot be had, or reaches no index with the
# settings that are pip's own, pip does the same in a minute or two: locks have hashes, and are complete.
locked = $(BIN)/python -m uv --quiet pip install --python $(1) --no-deps --require-hashes -r $(2) 2> /dev/null || \
	{ echo "  with pip: a minute or two ..."; \
	$(PIP) --python $(1) install --no-compile --no-deps --require-hashes -r $(2); }
# Flower holds back typer, click and rich. It has an environment of its own, which takes everything else from $(VENV).
FLOWER := $(VENV)/flower
FLOWER_TESTS := $(wildcard tests/integrations/test_flower*.py) tests/test_cli.py tests/test_docs.py
# How long `soak` runs. SEED repeats a schedule of faults, ONLY is one scenario or several, JSON a file for the table.
SECONDS := 120
# Reused by `lock` to keep the tool that writes the lock out of the locked environment.
LOCK_VENV := build/lock
BUILD_VENV := build/wheel
AUDIT_VENV := build/audit
COMPILE := $(LOCK_VENV)/bin/uv pip compile --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
	--upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet
# The dependency group `rivals`, by name: `pip install --group` needs a newer pip than Python 3.11 brings.
RIVALS := changepoint-online==1.2.1 river==0.26.1 ruptures==1.1.10

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies and this package

$(STAMP): requirements.lock requirements-flower.lock requirements-uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fedgauss needs Python 3.11 or later; $(PYTHON) is" "$$($(PYTHON) --version 2>&1)." \
		"Try: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing $$(grep -c == requirements.lock) locked dependencies ..."
	@$(PIP) install --no-compile --require-hashes -r requirements-uv.lock || true
	@$(call locked,$(BIN)/python,requirements.lock)
	@echo "Installing fedgauss ..."
	@$(PIP) install --no-deps --no-build-isolation -e .
	@echo "Installing Flower beside it ..."
	@$(PYTHON) -m venv --without-pip $(FLOWER)
	@$(call locked,$(FLOWER)/bin/python,requirements-flower.lock)
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

soak: setup ## run what is left alone for months under faults; SECONDS=120 SEED=7 ONLY=posted
	PYTHONPATH=tests $(FLOWER)/bin/python -m soak --seconds $(SECONDS) $(addprefix --seed ,$(SEED)) \
		$(addprefix --only ,$(ONLY)) $(addprefix --json ,$(JSON))

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

rivals: setup ## compare the detector with river, changepoint-online, ruptures, ocd and e-detectors
	$(PIP) install $(RIVALS)
	$(BIN)/python benchmarks/rival_table.py
	$(BIN)/python benchmarks/rival_bounds.py
	$(BIN)/python benchmarks/rivals.py

wheel: ## build the wheel and the sdist under dist/
	@$(PYTHON) -m venv $(BUILD_VENV)
	@$(BUILD_VENV)/bin/python -m pip install --disable-pip-version-check --quiet build twine
	@rm -rf dist build/lib build/bdist.*  # setuptools would take a module that is gone from build/lib
	$(BUILD_VENV)/bin/python -m build
	$(BUILD_VENV)/bin/twine check --strict dist/*

trywheel: wheel ## install both with each Python on the path and each extra, and try them there; many minutes
	$(BUILD_VENV)/bin/python scripts/try_wheel.py

lock: ## choose versions afresh and write the requirements*.lock files
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --disable-pip-version-check --quiet uv
	$(COMPILE) pyproject.toml --group dev --output-file requirements.lock
	$(COMPILE) --group flower --no-emit-package numpy --output-file requirements-flower.lock
	echo uv | $(COMPILE) - --output-file requirements-uv.lock

audit: ## look up known vulnerabilities of the locked dependencies; needs internet
	@$(PYTHON) -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip install --disable-pip-version-check --quiet pip-audit
	for lock in requirements*.lock; do $(AUDIT_VENV)/bin/pip-audit --disable-pip --require-hashes -r $$lock || exit 1; done

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist demo benchmarks/out src/*.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
