# Every target makes its own .venv first; python3 (>= 3.11) and make are all that is needed.
#   make PYTHON=python3.12 test     takes another python

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(firstword $(MAKEFILE_LIST))) help up demo test lint types layers pytest bench pipes torture fmt install clean retention cluster browser

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(READY) ## a node with a console, programs that keep it busy, and a link to make lossy, until Ctrl-C; UP=--spark adds a query, UP=--cluster runs three nodes to kill
	@$(BIN)/headpond up $(UP)

demo: $(READY) ## 100,000 messages over a bad link, a kill of the node, on through Spark, and the count
	@$(BIN)/headpond demo

test: lint types layers pytest ## everything that must pass

lint: $(READY) ## ruff: rules and format
	@echo "» lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted; run: make fmt"; exit 1; }

types: $(READY) ## mypy --strict
	@echo "» types"
	@$(BIN)/mypy

layers: $(READY) ## imports point downwards, machines do no IO
	@echo "» layers"
	@$(BIN)/lint-imports --no-logo

browser: ## a Chromium for the tests of the console: the one that is there, or Debian's
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	sudo=; test "$$(id -u)" -eq 0 || sudo="sudo -n"; \
	if command -v apt-get >/dev/null && $$sudo true 2>/dev/null; then \
	  echo "» installing chromium"; { $$sudo apt-get update -q && $$sudo apt-get install -y -q chromium; } >/dev/null; \
	else \
	  echo "error: the tests of the console need a Chromium, and there is none on the PATH"; \
	  echo "hint: install chromium, chromium-browser or google-chrome (Debian: apt-get install chromium)"; exit 1; \
	fi

pytest: $(READY) browser ## the tests alone
	@echo "» tests (those on Spark beside the others; their output comes last)"
	@$(BIN)/python -m compileall -q src  # hundreds of processes load it, and some machines let none of them keep what it compiled
	@log=$$(mktemp); \
	$(BIN)/pytest -p no:xdist -m spark > $$log 2>&1 & spark=$$!; \
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m 'not spark'; others=$$?; \
	wait $$spark; sparks=$$?; cat $$log; rm -f $$log; \
	test $$others -eq 0 && test $$sparks -eq 0

bench: $(READY) ## measures; prints numbers beside the machine's limits, judges nothing
	@$(BIN)/python -m bench.run $(BENCH)

bench-peers: $(READY) ## Headpond beside Redis, NATS, RabbitMQ and Kafka, in turns; PEERS='--rounds 5' passes options
	@$(PIP) install -r requirements/peers.txt -c requirements/constraints.txt
	@$(BIN)/python -m bench.peers $(PEERS)

pipes: $(READY) ## the table of all pipes: claimed against measured, at three fault levels
	@$(BIN)/python -m bench.pipes

sim: $(READY) ## 10,000 seeds of whole systems under faults in virtual time; SEEDS=100 runs fewer
	@$(BIN)/headpond sim run --seeds $(or $(SEEDS),10000) --jobs 2

torture: $(READY) ## ten minutes of real nodes, producers, consumers, links and Spark: killed, stopped, cut, out of room; then every promise
	@$(BIN)/python -m tests.torture $(TORTURE)

retention: $(READY) ## what soft and hard time to live, max_bytes and a message's own ttl delete, told by a real node
	@$(BIN)/python examples/retention.py

cluster: $(READY) ## Spark's own cluster on this machine: a worker killed, tasks run twice, and the counts
	@$(BIN)/pytest -p no:xdist tests/spark/test_cluster.py

fuzz: $(READY) ## every decoder, every file and a whole node under altered bytes, guided by coverage (FUZZ_S=60 s each)
	@$(BIN)/python -m tests.fuzz.run --seconds $(or $(FUZZ_S),60) $(TARGET)

planted: $(READY) ## plants a hundred bugs, one at a time, and shows which seed and which check of the simulation catch each
	@$(BIN)/python -m tests.sim.plant

docs: $(READY) ## the documentation as a site, in build/docs; broken links and anchors fail
	@echo "» docs"
	@$(PIP) install -r requirements/docs.txt -c requirements/constraints.txt
	@$(BIN)/mkdocs build --quiet
	@echo "build/docs/index.html"

screenshots: $(READY) browser ## every page of the console, while `headpond up` runs, into FOLDER
	@$(BIN)/python -m tests.node.http.console.screenshots $(or $(FOLDER),screenshots)

fmt: $(READY) ## formats and fixes what can be fixed
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

install: $(READY) ## only the .venv

clean: ## removes the .venv and all caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .fuzz build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml requirements/dev.txt requirements/constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed; name another: make PYTHON=/path/to/python3 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Headpond needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)"; \
	  echo "hint: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments (venv or ensurepip is missing)"; \
	  echo "hint: on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@if [ ! -x $(BIN)/python ]; then echo "» making $(VENV) ($$($(PYTHON) -V))"; $(PYTHON) -m venv $(VENV); fi
	@echo "» installing the tools and libraries into $(VENV) (some minutes at first: Spark is large)"
	@$(PIP) install -r requirements/dev.txt -c requirements/constraints.txt
	@$(PIP) install --no-build-isolation -e . -c requirements/constraints.txt
	@touch $@
