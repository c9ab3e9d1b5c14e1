# Two commands for a newcomer: `make run` and `make test`. Both need only Python 3.11+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CONFIG ?= config.yaml
TIME   ?= 600
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() * 3 // 2)')

.DEFAULT_GOAL := help
.PHONY: help run test lowest interop interop-all compare lint types bench profile performance growth fuzz soak sbom wheel provenance audit fidelity pages reliability docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# bridge.dialects is a link to adapters/, which the source distribution and some archives come without.
bridge/dialects/__init__.py:
	ln -sfn ../adapters bridge/dialects

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt | bridge/dialects/__init__.py
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e .
	@touch $@

# agentscope-runtime is an oracle of the tests: only its schema module is loaded, so its many dependencies stay out.
$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt | bridge/dialects/__init__.py
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps agentscope-runtime==1.1.6.post2
	@touch $@ $(VENV)/.run

# Real software of other projects needs other versions of what we use: tests start it from environments beside ours.
$(VENV)/%/.done: tests/interop/%.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/$*
	$(VENV)/$*/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

# Clients that run in Node.js, or in pages that it bundles: of A2A, AG-UI, the AI SDK, Google's SDK. A desk without Node.js goes without; CI does not.
tests/interop/%/node_modules/.stamp: tests/interop/%/package.json tests/interop/%/package-lock.json tests/interop/%/.npmrc
	@if command -v npm >/dev/null; then cd tests/interop/$* && npm ci --silent && touch node_modules/.stamp; \
	elif [ -z "$$CI" ]; then echo "NPM IS NOT INSTALLED: tests with the clients of tests/interop/$* will be skipped"; \
	else echo "npm is not installed, and CI must have it"; exit 1; fi

# Coding agents, whose platform packages keep them from having a lock file, and a page of 800 packages; their own
# versions are exact.
AGENTS := $(patsubst %,tests/interop/%/node_modules/.stamp,agents agents-all copilotkit mastra)
$(AGENTS): %/node_modules/.stamp: %/package.json %/.npmrc
	@if command -v npm >/dev/null; then cd $* && npm install --silent && touch node_modules/.stamp; \
	elif [ -z "$$CI" ]; then echo "NPM IS NOT INSTALLED: tests with the agents of $* will be skipped"; \
	else echo "npm is not installed, and CI must have it"; exit 1; fi

# Programs and libraries that are too large for every run.
LARGE := $(AGENTS) $(patsubst %,$(VENV)/%/.done,ag2 haystack libraries-all llama-index open-webui smolagents)

# libFuzzer for Python, a large wheel for Linux only: whoever fuzzes gets it.
$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@touch $@

OTHERS := $(patsubst %,$(VENV)/%/.done,a2a a2a-agents a2a-agents-old a2a-old agentscope agentscope2 ag-kit deploy genai langchain libraries \
	pydantic-ai schemathesis) \
	$(patsubst %,tests/interop/%/node_modules/.stamp,a2a-js agui ai-sdk ai-sdk-ui agents axe genai-js react)

run: $(VENV)/.run  ## serve config.yaml on http://127.0.0.1:8080; PORT=9000 for another port
	$(BIN)/dialect-bridge serve $(CONFIG)$(if $(PORT), --port $(PORT))

# A file's tests stay together: what they share (servers of databases, real agents) is started once. In the order of
# their names the many short files of tests/unit come last; by their count of tests the long ones with few would.
# Half as many at once again as there are cores: a good part of them waits for processes and clocks.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Without ALL, what starts processes for seconds (installers, workers, browsers, software of others) is left to CI.
test: $(VENV)/.dev $(if $(ALL),$(OTHERS))  ## the tests for before every commit; ALL=1 for all, as in CI; JOBS=1 for one at a time
	$(PYTEST) $(if $(ALL),,-m "not slow and not interop and not interop_all") $(ARGS)

# Over those of constraints.txt, in an environment of their own: pip has no way to choose the oldest by itself.
lowest: $(BIN)/python  ## the tests with the oldest libraries that pyproject.toml allows
	$(MAKE) VENV=build/lowest build/lowest/.dev
	$(BIN)/python tests/lowest.py > build/lowest/lowest.txt
	build/lowest/bin/pip install --quiet --disable-pip-version-check -r build/lowest/lowest.txt
	$(MAKE) VENV=build/lowest ALL=1 test

interop: $(VENV)/.dev $(OTHERS)  ## those with the real software of the protocols
	$(PYTEST) -m interop $(ARGS)

interop-all: $(VENV)/.dev $(LARGE)  ## coding agents, CopilotKit, Open WebUI, libraries: too large for every run
	$(BIN)/python -m pytest -m interop_all $(ARGS)

COMPARED := $(patsubst %,$(VENV)/%/.done,llm-comply llm-rosetta nemo-switchyard)
compare: $(VENV)/.dev $(COMPARED) $(AGENTS)  ## judges of others before the bridge and other gateways: docs/tested.md; COMPARE=wires without agents
	$(BIN)/python -m tests.interop.compare $(COMPARE)

lint: $(VENV)/.dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

# Other gateways that `make bench` measures, each in an environment of its own. One that cannot be installed is not measured.
$(VENV)/%/.done: bench/peers/%.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/$*
	@$(VENV)/$*/bin/pip install --quiet --disable-pip-version-check --no-deps -r $< && touch $@ \
		|| { rm -rf $(VENV)/$*; echo "$* CANNOT BE INSTALLED HERE: it will not be measured"; }

PEERS := $(patsubst bench/peers/%.txt,$(VENV)/%/.done,$(wildcard bench/peers/*.txt))

bench: $(VENV)/.dev $(PEERS)  ## measure beside other gateways and baselines, write docs/performance.md; BENCH="--repeats 1" for a look
	$(BIN)/python bench/run.py $(BENCH)

profile: $(VENV)/.dev  ## count our calls for a token and a request, and the bytecodes of streams and events by function: docs/profile.md
	$(BIN)/python bench/calls.py
	$(BIN)/python bench/bytecodes.py

performance: $(VENV)/.dev  ## write docs/performance.md and its pictures anew, from what was measured last
	$(BIN)/python bench/report.py

growth: $(VENV)/.dev  ## measure how costs grow: docs/growth.json and the tables of docs/scale.md; SECTIONS="streams routes" for some
	$(BIN)/python bench/growth.py $(SECTIONS)

# Each has its own process: the codecs in one that is led by coverage, the whole server in one that watches its event loop.
fuzz: $(VENV)/.fuzz  ## look for bytes that break a codec, then the server, for TIME seconds (600); what is found becomes a test
	$(BIN)/python -m tests.fuzz -max_total_time=$$(($(TIME) / 2))
	$(BIN)/python -m tests.fuzz.whole $$(($(TIME) / 2))

fidelity: $(VENV)/.dev  ## write docs/fidelity.md anew, from the cards
	$(BIN)/python -m tests.docs.fidelity

pages: $(VENV)/.dev  ## write anew what pages hold of the code, of files and of each other
	$(BIN)/python -m tests.docs.pages

reliability: $(VENV)/.dev  ## measure every fault and write the table of docs/reliability.md anew
	$(BIN)/python -m tests.faults

soak: $(VENV)/.dev  ## mixed load with faults for TIME seconds (600); memory, files and tasks must return to the start
	$(BIN)/python -m tests.faults.soak $(TIME)

# All that is published is built at the time of its commit, so that the same commit gives the same bytes.
EPOCH = $(shell git log -1 --format=%ct)
SBOM := build/dialect-bridge.cdx.json

sbom: $(VENV)/.dev  ## the bill of materials of what runs, CycloneDX: build/dialect-bridge.cdx.json
	@mkdir -p build
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python deploy/release/sbom.py $(SBOM)

wheel: sbom  ## the wheel, with its bill of materials, and the source distribution: dist
	rm -rf dist
	SOURCE_DATE_EPOCH=$(EPOCH) DIALECT_BRIDGE_SBOM=$(SBOM) $(BIN)/python -m hatchling build -d dist

provenance: wheel  ## commit and hashes of what is in dist, as an unsigned in-toto statement: build/provenance.json
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python deploy/release/provenance.py dist/* $(SBOM) > build/provenance.json

# pip-audit has thirty dependencies of its own, and judges versions by their numbers: it needs none of ours beside it.
$(VENV)/audit/.done: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3' && touch $@ \
		|| { rm -rf $(VENV)/audit; echo "NOT AUDITED: pip-audit cannot be installed"; test -n "$$CI"; }

audit: $(VENV)/audit/.done  ## known vulnerabilities of the versions in constraints.txt, as far as the index tells
	@test ! -e $< || $(VENV)/audit/bin/python deploy/release/audit.py constraints.txt

docs: $(VENV)/.dev  ## the documentation as a site, in build/docs
	$(BIN)/mkdocs build --strict

clean:  ## forget the virtual environment and caches
	rm -rf $(VENV) tests/interop/*/node_modules .mypy_cache .ruff_cache .pytest_cache build dist
