# Every target sets up what it needs first: `make run` and `make test` are the two to know.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.with-demo
EXPERIMENTS := $(VENV)/.with-experiments
DEV := $(VENV)/.with-dev
SIZE_demo := 350 MB
SIZE_experiments := 660 MB
SIZE_dev := 1.1 GB
SIZE_docs := 700 MB
# Images of containers set it. Each process would compile its modules and NumPy's, Numba's and SciPy's anew, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run sim run-mininet run-bmv2 test lint docs draft release p4 p4-tofino bench clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# One file for each extra that is installed, so that a demonstration does not wait for what only tests need.
$(VENV)/.with-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "netsum needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo 'installing netsum and the extra "$*" into $(VENV), which takes a minute ($(SIZE_$*))'
	@# Made once: venv of another Python would leave a mixture of two.
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Bytecode of what is used is compiled at its first import: that halves the time of the installation.
	@$(BIN)/pip install --quiet --no-compile --editable '.[$*]'
	@touch $@

run: $(DEMO) ## Train on four workers while the P4 program adds their gradients (no root)
	$(BIN)/netsum run digits

sim: $(EXPERIMENTS) ## Run an experiment in virtual time, and name its report
	$(BIN)/netsum sim run quick

run-mininet: $(DEMO) ## The same with hosts and switch in network namespaces (Mininet, root)
	$(BIN)/netsum run digits --mininet

run-bmv2: $(DEMO) ## The same through BMv2 in network namespaces (Mininet, root)
	$(BIN)/netsum run digits --switch bmv2

test: $(DEV) ## Run lint, types, import rules and every test
	@# One processor compiles; another lints, which takes less, and compiles the rest.
	@$(BIN)/python -m tests.compile_ahead & compiling=$$!; trap "kill $$compiling 2>/dev/null" EXIT; \
	  $(MAKE) lint && $(BIN)/python -m tests.compile_ahead --explorer && wait $$compiling
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(PYTEST_OPTIONS)

lint: $(DEV) ## Lint, types, import rules, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.words

SITE ?= build/site
docs: $(VENV)/.with-docs ## Build the site into build/site, a release's into SITE=build/site/RELEASE; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html . $(SITE)
	@echo 'the site: $(SITE)/index.html'

draft: $(VENV)/.with-docs ## Build the Internet-Draft of the protocol, text and HTML, into build/
	$(BIN)/python -m docs.draft && mkdir -p build && $(BIN)/python -m docs.draft_xml > build/draft-netsum-slot-protocol.xml
	$(BIN)/xml2rfc --quiet --no-network --text --html build/draft-netsum-slot-protocol.xml

release: ## Build and check a release in build/dist; nothing is uploaded
	PYTHON=$(PYTHON) .github/release.sh

p4: $(DEV) ## Compile the P4 program (needs p4c)
	$(BIN)/python p4/spec/generate.py
	$(BIN)/python p4/build.py

p4-tofino: $(DEV) ## Compile it for Tofino 1 and 2 (needs p4c with its Tofino back end)
	$(BIN)/python p4/spec/generate.py
	$(BIN)/python p4/tofino.py
	$(BIN)/python -m docs.tofino_tables

bench: $(DEMO) ## Repeat the measurements in the docs
	$(BIN)/python -m tests.engine
	$(BIN)/python -m tests.host_agent.codec_times

clean: ## Remove the virtual environment and what tools left
	rm -rf $(VENV) build explored runs .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
