# Two commands for a newcomer: `make run` and `make test`. Both need only Python 3.11+ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CONFIG ?= config.yaml
TIME   ?= 600
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() * $(if $(ALL),3,2))')

# Tests start hundreds of processes: where bytecode is not written, each one compiles all modules again.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help run test pairs bytecode lowest others interop interop-all compare lint types bench profile instructions performance growth fuzz soak sbom wheel provenance audit fidelity pages reliability docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# bridge.dialects is a symbolic link to adapters/, which source distributions and some archives omit.
bridge/dialects/__init__.py:
	ln -sfn ../adapters bridge/dialects

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt | bridge/dialects/__init__.py
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e .
	@touch $@

# uv needs a tenth of pip's time; it does not read pip's configuration, so a mirror of PyPI is passed on.
UV = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}}" \
	$(BIN)/uv pip install --quiet

# The tests load only the schema module of agentscope-runtime, so its many dependencies are not installed.
$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt | bridge/dialects/__init__.py
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(UV) --python $(BIN)/python -c constraints.txt -e '.[dev]'
	$(UV) --python $(BIN)/python --no-deps agentscope-runtime==1.1.6.post2
	@touch $@ $(VENV)/.run

# Software of other projects needs other versions of our dependencies: each has its own environment.
$(VENV)/%/.done: tests/interop/%.txt | $(VENV)/.dev
	$(PYTHON) -m venv --without-pip $(VENV)/$*
	$(UV) --python $(VENV)/$*/bin/python --no-deps -r $<
	@touch $@

# Clients for Node.js or the browser: A2A, AG-UI, the AI SDK, Google's SDK. Without npm they are skipped, except in CI.
tests/interop/%/node_modules/.stamp: tests/interop/%/package.json tests/interop/%/package-lock.json tests/interop/%/.npmrc
	@if command -v npm >/dev/null; then cd tests/interop/$* && npm ci --silent && touch node_modules/.stamp; \
	elif [ -z "$$CI" ]; then echo "NPM IS NOT INSTALLED: tests with the clients of tests/interop/$* will be skipped"; \
	else echo "npm is not installed, and CI must have it"; exit 1; fi

# Coding agents (their platform-specific packages prevent a lock file) and a page with 800 packages; their own versions
# are exact.
AGENTS := $(patsubst %,tests/interop/%/node_modules/.stamp,acp-agents agents agents-all connect-js copilotkit mastra)
$(AGENTS): %/node_modules/.stamp: %/package.json %/.npmrc
	@if command -v npm >/dev/null; then cd $* && npm install --silent && touch node_modules/.stamp; \
	elif [ -z "$$CI" ]; then echo "NPM IS NOT INSTALLED: tests with the agents of $* will be skipped"; \
	else echo "npm is not installed, and CI must have it"; exit 1; fi

# Programs and libraries that are too large for CI.
LARGE := $(AGENTS) $(patsubst %,$(VENV)/%/.done,aegra ag2 aider agentscope2 crewai dspy gradio haystack libraries-all llama-index open-webui own-agents smolagents)

# libFuzzer for Python is a large wheel for Linux only, so it is installed for fuzzing only.
$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@touch $@

OTHERS := $(patsubst %,$(VENV)/%/.done,a2a a2a-agents a2a-agents-old a2a-old acp agentscope agentscope2 ag-kit deploy genai \
	langchain langgraph libraries mcp pydantic-ai schemathesis) \
	$(patsubst %,tests/interop/%/node_modules/.stamp,a2a-js acp-js agui ai-sdk ai-sdk-ui agents axe genai-js kit-web langgraph-js mcp-js ollama-js react)

run: $(VENV)/.run  ## serve config.yaml on http://127.0.0.1:8080; PORT=9000 changes the port
	$(BIN)/dialect-bridge serve $(CONFIG)$(if $(PORT), --port $(PORT))

# The tests of a file stay in one process, so what they share (database servers, real agents) starts once. Ordered by
# name, the many short files of tests/unit run last; ordered by number of tests, long files with few tests would.
# There are more processes than cores, because many tests wait for timers, and most of the slow ones for other processes.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Left to CI without ALL: tests that start installers, workers, browsers or other projects' software, and most pairs of the
# tests that are marked `sampled`.
test: $(VENV)/.dev $(if $(ALL),$(OTHERS))  ## run the tests for each commit; ALL=1 runs all, as in CI; JOBS=1 runs one at a time
	$(PYTEST) $(if $(ALL),,--ignore tests/interop -m "not slow and not interop and not interop_all") $(if $(AGAIN),--cache-clear) $(ARGS) \
		$(if $(AGAIN),|| $(BIN)/python -m tests.again $$? $(AGAIN))

# Of the tests that are marked `turns`, a commit runs a part of the pairs for each test, so that each pair is in some.
pairs: $(VENV)/.dev $(OTHERS)  ## run the tests of pairs with the pairs that `make test ALL=1` leaves out
	$(PYTEST) -m "rest and not interop_all" $(ARGS)

# Without it, the processes of `make test` start together and each writes the same files. Failures: see `make test`.
bytecode: $(VENV)/.dev
	@mkdir -p build
	-$(BIN)/python -m pytest --collect-only -qq > build/bytecode.txt

# In a separate environment, over the versions of constraints.txt: pip cannot choose the oldest versions itself.
lowest: $(BIN)/python  ## run the tests with the oldest libraries that pyproject.toml allows
	$(MAKE) VENV=build/lowest build/lowest/.dev
	$(BIN)/python tests/lowest.py > build/lowest/lowest.txt
	build/lowest/bin/pip install --quiet --disable-pip-version-check -r build/lowest/lowest.txt
	$(MAKE) VENV=build/lowest ALL=1 test

others: $(OTHERS)  ## install other projects' software for the tests of ALL=1; faster with -j 8, since downloads wait

interop: $(VENV)/.dev $(OTHERS)  ## run the tests with other projects' clients and servers
	$(PYTEST) -m "interop and not interop_all and not rest" $(ARGS)

interop-all: $(VENV)/.dev $(LARGE)  ## run the tests with coding agents, CopilotKit, Open WebUI and large libraries
	$(BIN)/python -m pytest -m interop_all $(ARGS)

COMPARED := $(patsubst %,$(VENV)/%/.done,llm-comply llm-rosetta nemo-switchyard)
compare: $(VENV)/.dev $(COMPARED) $(AGENTS)  ## run other projects' test suites against the bridge and other gateways, for docs/tested.md; COMPARE=wires omits agents
	$(BIN)/python -m tests.interop.compare $(COMPARE)

lint: $(VENV)/.dev  ## run ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## run mypy in strict mode
	$(BIN)/mypy

# Other gateways that `make bench` measures, each in its own environment; one that cannot be installed is skipped.
$(VENV)/%/.done: bench/peers/%.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/$*
	@$(VENV)/$*/bin/pip install --quiet --disable-pip-version-check --no-deps -r $< && touch $@ \
		|| { rm -rf $(VENV)/$*; echo "$* CANNOT BE INSTALLED HERE: it will not be measured"; }

# The bridge on the interpreter that Debian and Ubuntu users have; elsewhere, it is not measured.
$(VENV)/debian/.done: pyproject.toml constraints.txt | $(VENV)/.dev
	@if /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		/usr/bin/python3 -m venv --without-pip --clear $(VENV)/debian && \
		$(UV) --python $(VENV)/debian/bin/python -c constraints.txt -e '.[uvloop,httptools]' && touch $@; \
	else echo "/usr/bin/python3 IS NO PYTHON 3.11 OR NEWER: it will not be measured"; fi

PEERS := $(VENV)/debian/.done $(patsubst bench/peers/%.txt,$(VENV)/%/.done,$(wildcard bench/peers/*.txt))

bench: $(VENV)/.dev $(PEERS)  ## benchmark the bridge and other gateways, write docs/performance.md; BENCH="--repeats 1" is faster
	$(BIN)/python bench/run.py $(BENCH)

profile: $(VENV)/.dev  ## count calls per token and request, and bytecodes by function, for docs/profile.md
	$(BIN)/python bench/calls.py
	$(BIN)/python bench/bytecodes.py

instructions: $(VENV)/.dev $(VENV)/debian/.done  ## count instructions of the whole server for a request; needs valgrind
	$(BIN)/python bench/instructions.py

performance: $(VENV)/.dev  ## rewrite docs/performance.md and its charts from the last measurement
	$(BIN)/python bench/report.py

growth: $(VENV)/.dev  ## measure how costs grow, for docs/growth.json and docs/scale.md; SECTIONS="streams routes" measures some
	$(BIN)/python bench/growth.py $(SECTIONS)

# A coverage-guided fuzzer for the codecs, the whole server with a watch on its event loop, and the server's output.
fuzz: $(VENV)/.fuzz  ## fuzz the codecs, the server, and what it sends, for TIME seconds (600)
	$(BIN)/python -m tests.fuzz -max_total_time=$$(($(TIME) / 3))
	$(BIN)/python -m tests.fuzz.whole $$(($(TIME) / 3))
	$(BIN)/python -m tests.fuzz.output $$(($(TIME) / 3))

fidelity: $(VENV)/.dev  ## regenerate docs/fidelity.md from the declared capabilities
	$(BIN)/python -m tests.docs.fidelity

pages: $(VENV)/.dev  ## regenerate the copied parts of pages
	$(BIN)/python -m tests.docs.pages

reliability: $(VENV)/.dev  ## measure every fault and rewrite the tables of docs/reliability.md
	$(BIN)/python -m tests.faults

soak: $(VENV)/.dev  ## run mixed load with faults for TIME seconds (600), which checks for leaks, and models that are silent for so long; then databases that break under many processes, for an hour (STORM="sqlite --processes 2" is shorter)
	@$(BIN)/python -m tests.faults.silent $(TIME) & $(BIN)/python -m tests.faults.soak $(TIME); code=$$?; wait $$! && exit $$code
	@$(BIN)/python -m tests.runs.storm $(STORM)

# Release files have the time of their commit, so that the same commit gives the same bytes.
EPOCH = $(shell git log -1 --format=%ct)
SBOM := build/dialect-bridge.cdx.json

sbom: $(VENV)/.dev  ## write the bill of materials (CycloneDX) to build/dialect-bridge.cdx.json
	@mkdir -p build
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python deploy/release/sbom.py $(SBOM)

wheel: sbom  ## build the wheel, with its bill of materials, and the source distribution in dist
	rm -rf dist
	SOURCE_DATE_EPOCH=$(EPOCH) DIALECT_BRIDGE_SBOM=$(SBOM) $(BIN)/python -m hatchling build -d dist

provenance: wheel  ## write an unsigned in-toto statement about dist to build/provenance.json
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python deploy/release/provenance.py dist/* $(SBOM) > build/provenance.json

# pip-audit has thirty dependencies and needs only the version numbers of ours, so it has its own environment.
$(VENV)/audit/.done: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3' && touch $@ \
		|| { rm -rf $(VENV)/audit; echo "NOT AUDITED: pip-audit cannot be installed"; test -n "$$CI"; }

audit: $(VENV)/audit/.done  ## check the versions in constraints.txt for known vulnerabilities
	@test ! -e $< || $(VENV)/audit/bin/python deploy/release/audit.py constraints.txt

docs: $(VENV)/.dev  ## build the documentation site in build/docs
	$(BIN)/mkdocs build --strict

clean:  ## delete the virtual environment and caches
	rm -rf $(VENV) tests/interop/*/node_modules .mypy_cache .ruff_cache .pytest_cache build dist
