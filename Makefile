# The project's commands. `make demo` and `make test` need python3 >= 3.11, make and a package index, nothing else;
# everything is installed into .venv, once, and again only when pyproject.toml or constraints.txt change.

# make VENV=.venv-other PYTHON=/path/to/python3 ... uses another Python beside the one of .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -q

.DEFAULT_GOAL := help
.PHONY: help setup tools demo test test-long check format bench bench-kafka bench-alone sim swarm clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(INSTALLED) ## make .venv and install everything into it

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $$($(PYTHON) --version) is too old; name a Python >= 3.11 with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "make: could not create $(VENV); on Debian and Ubuntu install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[console,dev,gateway,registry,security,spark]'
	@command -v java >/dev/null || test -x "$${JAVA_HOME:-/nowhere}/bin/java" || { \
	  echo "There is no Java: pip brings one, for Spark"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[java]' || \
	  echo "make: pip has no Java for this system either; what needs Spark is left out" >&2; }
	@touch $@

tools: setup ## what the tests need beside Python packages: kcat, haproxy, a JDK, Maven, Node (Debian), npm packages, jars
	@$(BIN)/python -m tests.parts bring

demo: setup ## a broker, its clients, schemas that evolve, a secure cluster, one lost but for its bucket, one killed at work, a data pipeline on Spark, an audit: nothing is lost (3 minutes)
	@$(BIN)/python examples/demo.py

check: setup ## format, lint, types, layering, tidiness (budget: 60 s)
	$(BIN)/ruff format --check --quiet src tests bench docs examples
	$(BIN)/ruff check --quiet src tests bench docs examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) tests/unit/test_tidy.py

# Budgets in seconds on two cores: a stage that outgrows its own gives tests to `make test-long`.
# Two processes, as tests mostly wait; Spark fills both cores by itself.
# Tests that a missing part has skipped are noted in this file, and told at the end.
test: export TAILRACE_MISSING_PARTS := $(CURDIR)/.cache/missing-parts
test: check ## check, then every test that is not marked `long` (about 15 minutes)
	@rm -f $(TAILRACE_MISSING_PARTS)
	@echo "== unit, golden, property: 240 s"
	$(PYTEST) -n 2 --ignore tests/unit/test_tidy.py tests/unit tests/golden tests/property  # `check` has run that one.
	@echo "== simulated clusters: 105 s"
	$(PYTEST) -n 2 tests/sim
	@echo "== real processes: 210 s"
	$(PYTEST) -n 2 --dist worksteal tests/real
	@echo "== clients: 150 s"
	$(PYTEST) -n 2 tests/compat
	@echo "== Spark: 175 s"
	$(PYTEST) tests/spark
	@$(BIN)/python -m tests.parts report

# Hours: every stage is run, and what has failed is told at the end. Two processes only where nobody looks at the clock.
LONG_STAGES := "-n 2 tests/unit tests/golden tests/property" "-n 2 tests/sim" tests/real tests/compat tests/spark
test-long: setup ## the tests marked `long`, in stages: make test-long LONG_STAGES=tests/real
	@failed=; for stage in $(LONG_STAGES); do \
	  echo "== long: $$stage"; \
	  $(PYTEST) -o faulthandler_timeout=600 -m long $$stage || failed="$$failed [$$stage]"; \
	done; test -z "$$failed" || { echo "make: failed:$$failed" >&2; exit 1; }

format: setup ## let ruff format and mend what it can
	$(BIN)/ruff format src tests bench docs examples
	$(BIN)/ruff check --fix src tests bench docs examples

SEED ?= 1
sim: setup ## one run of the simulated cluster under faults: make sim SEED=7
	$(BIN)/python -m tailrace sim $(SEED)

N ?= 100
swarm: setup ## many seeds over all cores: make swarm N=1000 SEED=1 DAMAGE=1
	$(BIN)/python -m tailrace sim $(SEED) --count $(N) --quiet $(if $(DAMAGE),--damage)

bench: setup ## measure the broker on this machine (ten minutes)
	$(BIN)/python -m bench

ROWS ?= *
bench-kafka: setup ## the same work for Apache Kafka, in turns (an hour; needs Java and Maven): make bench-kafka ROWS='produce-*'
	$(BIN)/python -m bench.versus --only $(foreach row,$(ROWS),'$(row)')

bench-alone: setup ## some of these rows again, alone with their brokers: the ratios have to be the same (ten minutes)
	$(BIN)/python -m bench.versus --alone

clean: ## remove .venv and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
