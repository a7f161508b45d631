# Every target does what it needs first; on a fresh machine `make test` or `make demo` is enough.
# What scripts/setup cannot install as an ordinary user, it names.

PYTHON = .venv/bin/python
# Not the C of tests and examples, whose line numbers are in tests.
CLANG_FORMAT = .venv/bin/clang-format
NATIVE = $(wildcard crdebug/native/*/*.[ch])

# Tracebacks are Python's own: CPython 3.11's ast, which pytest's need, fails where two threads use it
# at a time (github.com/python/cpython/issues/106905), and that ends the run.
# Jobs wait for each other most of the time: as many tests at a time as keep two processors busy.
WORKERS = 3
PYTEST = $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal --again --tb=native --durations=20

.PHONY: help setup test test-all test-trixie demo bench lint format clean

help: ## this list
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what is missing, and crdebug into .venv
	@scripts/setup

test: ## format, lint, types, and the tests of all tiers
	@scripts/setup --test
	@$(MAKE) --no-print-directory lint
	$(PYTEST) $(PYTEST_OPTIONS)

test-all: ## what a release runs: all sweeps and every MPI, in a virtual machine, on Debian 13
	@scripts/setup --test --vm
	@$(MAKE) --no-print-directory lint
	$(PYTEST) --all $(PYTEST_OPTIONS)
	scripts/in-vm $(PYTHON) -m pytest tests/criu/test_incremental.py
	@$(MAKE) --no-print-directory test-trixie

test-trixie: ## make test on Debian 13, in a fresh clone of what is committed
	@scripts/other-debian trixie make test PYTEST_OPTIONS="$(PYTEST_OPTIONS)"

demo: ## debug examples/heat: checkpoint, run on, go back
	@scripts/demo

bench: ## run the measurements in benchmarks/
	@scripts/bench

lint: ## the format of Python and C, ruff's rules, and strict types
	@scripts/setup
	$(CLANG_FORMAT) --dry-run -Werror $(NATIVE)
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

format: ## put Python files into ruff's format, and the native part into clang-format's
	@scripts/setup
	$(CLANG_FORMAT) -i $(NATIVE)
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

clean: ## remove what was built and cached here, but not .venv
	@test ! -f examples/heat/Makefile || $(MAKE) --no-print-directory -C examples/heat clean
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find crdebug gdbscripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
