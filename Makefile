# Every target does what it needs first; on a fresh machine `make test` or `make demo` is enough.
# To set the machine up, scripts/setup must be run as root.

PYTHON = .venv/bin/python

.PHONY: help setup test demo bench lint format clean

help: ## this list
	@sed -n -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what is missing, and crdebug into .venv
	@scripts/setup

test: ## format, lint, types, and the tests of all tiers
	@scripts/setup --test
	@$(MAKE) --no-print-directory lint
	$(PYTHON) -m pytest $(PYTEST_OPTIONS)

demo: ## debug examples/heat: checkpoint, run on, go back
	@scripts/demo

bench: ## run the measurements in benchmarks/
	@scripts/bench

lint: ## ruff's format and rules, and strict types
	@scripts/setup
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

format: ## put every Python file into ruff's format
	@scripts/setup
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

clean: ## remove what was built and cached here, but not .venv
	@test ! -f examples/heat/Makefile || $(MAKE) --no-print-directory -C examples/heat clean
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find crdebug gdbscripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
