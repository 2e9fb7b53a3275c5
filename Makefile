# `make` alone lists the targets. Every target sets up .venv first, so a fresh machine needs
# only python3 (3.11 or newer), make and a package index. demo and tour install what Penstock
# needs to run; all other targets also install the tools and the servers for the tests.

PYTHON  ?= python3
# Twice the cores of a small machine: tests wait for processes, leases and servers a third of their time. With
# six workers a run was not shorter: each imports and collects all tests.
WORKERS ?= 4
ARGS    ?=

PY := .venv/bin/python
# The names depend on where the checkout is, so that a copied or moved one is installed again.
PLACE := $(firstword $(shell printf '%s' '$(CURDIR)' | cksum))
RUNS  := .venv/.runs-$(PLACE)
STAMP := .venv/.installed-$(PLACE)
PYTEST = $(PY) -m pytest -q -n $(WORKERS) --dist worksteal --durations=20
CODE := $(wildcard src tests scripts bench examples)

# An activated environment of the caller must not leak into ours.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help setup demo tour browser pooler test test-long test-chaos check lint type format bench bench-search peers pipeline-peers capacity chaos kills formatkills hostile rapidocr versions docs docs-site verify figures clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv with Penstock and the development tools
	@echo "Ready: .venv/bin/penstock"

define ENVIRONMENT
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Penstock needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PY) -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "Creating .venv"; $(PYTHON) -m venv --clear .venv; }
endef

# Build tools first: Penstock is then built with the pinned ones.
INSTALL := $(PY) scripts/install.py -c constraints.txt
# As pip does with an installed package: a command that compiles its modules takes twice the time.
COMPILED = @$(PY) -m compileall -q src

$(RUNS): pyproject.toml constraints.txt
	$(ENVIRONMENT)
	@echo "Installing Penstock into .venv (once)"
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation -e .
	$(COMPILED)
	@rm -f .venv/.runs-* && touch $@

$(STAMP): pyproject.toml constraints.txt
	$(ENVIRONMENT)
	@echo "Installing Penstock, its tools and the servers for its tests into .venv (once)"
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation -e '.[dev,redis,servers]'
	$(COMPILED)
	@rm -f .venv/.installed-* .venv/.runs-* && touch $@ $(RUNS)

# In the environment, so that a folder may have spaces and quotes in its name.
demo: export DIR := $(DIR)
demo: $(RUNS) ## Index the documentation (or DIR=...) and search it
	@$(PY) examples/demo_documents.py "$$DIR"

tour: $(RUNS) ## Watch the queue retry, recover and finish
	@$(PY) examples/demo_queue.py $(ARGS)

# Without a browser the tests of the dashboard are skipped, in CI they fail. Only root can install one.
browser: ## Install Chromium for the tests of the dashboard, where root
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || [ "$$(id -u)" != 0 ] \
		|| { echo "Installing Chromium for the tests of the dashboard (once)"; \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
		|| echo "Chromium could not be installed" >&2

# Without a pooler its tests are skipped, in CI they fail. Only root can install one.
pooler: ## Install PgBouncer for the tests of PostgreSQL behind a pooler, where root
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || [ "$$(id -u)" != 0 ] \
		|| { echo "Installing PgBouncer for the tests of a pooler (once)"; \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends pgbouncer >/dev/null; } \
		|| echo "PgBouncer could not be installed" >&2

test: $(STAMP) browser pooler ## Run the tests (ARGS="-k name" narrows, WORKERS=8 widens)
	@$(PYTEST) $(ARGS)

# On the disk: the tests of `make test` keep their files in memory where they can.
test-long: $(STAMP) pooler ## Run the longer tests: more engines, more random inputs, more kills
	@PYTEST_DEBUG_TEMPROOT="$${TMPDIR:-/tmp}" $(PYTEST) -m "long and not chaos and not versions" $(ARGS)

RERUN = { [ -n "$$CI" ] && $(PY) -m scripts.rerun; }

check: ## Everything CI runs: lint, type, verify, test, test-long, 3 minutes of chaos; in CI, failed tests once more, alone
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory type
	@$(MAKE) --no-print-directory verify
	@$(MAKE) --no-print-directory test || $(RERUN)
	@$(MAKE) --no-print-directory test-long || $(RERUN)
	@$(MAKE) --no-print-directory chaos ARGS="--minutes 3"

lint: $(STAMP) ## Check style and formatting
	@$(PY) -m ruff check $(CODE)
	@$(PY) -m ruff format --check $(CODE)

format: $(STAMP) ## Format the code and apply safe fixes
	@$(PY) -m ruff check --fix $(CODE)
	@$(PY) -m ruff format $(CODE)

type: $(STAMP) ## Check types
	@$(PY) -m mypy $(CODE)

bench: $(STAMP) ## Measure against hand-written floors
	@$(INSTALL) --no-build-isolation -e '.[peers]'
	@$(PY) -m bench $(ARGS)

bench-search: $(STAMP) ## Measure how well search finds (ARGS="--embedder minilm --choose --store postgres")
	@$(PY) -m bench.search_quality $(ARGS)

peers: $(STAMP) ## Measure beside the queues people use today
	@$(INSTALL) --no-build-isolation -e '.[peers]'
	@$(PY) -m bench.peers $(ARGS)

pipeline-peers: $(STAMP) ## Measure beside the libraries people index folders with
	@$(PY) -m bench.pipeline_peers $(ARGS)

capacity: $(STAMP) ## Measure a million jobs, two million chunks and a hundred hosts (ARGS="--quick")
	@$(PY) -m bench.capacity $(ARGS)

chaos: $(STAMP) pooler ## Attack a deployment of each engine for 30 minutes, and check (ARGS="--minutes 3 --engines redis")
	@$(PY) -m tests.chaos $(ARGS)

test-chaos: $(STAMP) pooler ## Run the tests that take minutes
	@$(PY) -m pytest -q -m chaos $(ARGS)

kills: $(STAMP) pooler ## Kill workers and servers 300 times on each engine, and account (ARGS="--engines redis")
	@$(PY) -m tests.worker.kill_run $(ARGS)

formatkills: $(STAMP) ## Kill workers while they index a file of each format, and check (ARGS="--kills 200")
	@$(PY) -m tests.documents.format_kills $(ARGS)

hostile: $(STAMP) ## Index a folder of hostile files beside 1,000 good ones, and check
	@$(PY) -m tests.documents.hostile_folder $(ARGS)

rapidocr: $(STAMP) ## Install the second OCR engine (271 MB) and test it
	@$(INSTALL) --no-build-isolation -e '.[rapidocr]'
	@$(PY) -m pytest -q -n 0 -k rapidocr tests/pipeline/test_rapidocr.py tests/pipeline/test_ocr_corpus.py $(ARGS)

versions: $(STAMP) ## Switch real projects to their next release (TOOL= makes the releases)
	@PENSTOCK_VERSIONS_TOOL='$(abspath $(TOOL))' $(PY) -m pytest -q -m versions -s $(ARGS)

docs: $(STAMP) ## Regenerate docs/reference
	@$(PY) -m scripts.reference

docs-site: $(STAMP) ## Build the documentation as a site, in build/site
	@$(INSTALL) --no-build-isolation -e '.[docs]'
	@$(PY) -m scripts.docs_site

verify: $(STAMP) ## Fail when docs/reference is not current, or modules import each other
	@$(PY) -m scripts.reference --check
	@$(PY) -m scripts.figures --check

figures: $(STAMP) ## Print how deep the modules are, and how many files a command runs
	@$(PY) -m scripts.figures $(ARGS)

clean: ## Remove .venv, caches and build results
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find src tests scripts bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
