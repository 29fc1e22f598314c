# Two commands set everything up: `make demo` and `make test`. Each makes the virtual environment as needed,
# pinned by the lock files in requirements/.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# What is imported is compiled then; all of torch and transformers would take a minute, and most of it is never read.
INSTALL := $(PIP) install --no-compile
SWEEP := examples/h200-vllm-dsv4
REPORT := report
# One more than there are cores: some tests wait for a server's clock, not for a core.
TESTS_AT_ONCE ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/pytest -n $(TESTS_AT_ONCE) --dist worksteal
LABELLED := --label context=4k $(SWEEP)/context4k --label context=12k $(SWEEP)/context12k

.DELETE_ON_ERROR:
.PHONY: demo test test-core test-exhaustive lint types floors corpus docs lock clean

demo: $(VENV)/.core
	@$(BIN)/wavewise analyze $(LABELLED)
	@$(BIN)/wavewise analyze $(LABELLED) --out $(REPORT) --force > /dev/null
	@echo
	@echo "The same batch at 4k and at 12k context, compared:"
	@echo
	@$(BIN)/wavewise diff $(SWEEP)/context4k/bs064.json.gz $(SWEEP)/context12k/bs064.json.gz
	@$(BIN)/wavewise diff $(SWEEP)/context4k/bs064.json.gz $(SWEEP)/context12k/bs064.json.gz --out $(REPORT)/diff --force > /dev/null
	@$(BIN)/wavewise export $(SWEEP)/context4k/bs064.json.gz --perfetto $(REPORT)/bs064.perfetto.json.gz --csv $(REPORT)/tables --force > /dev/null
	@echo
	@echo "In $(REPORT)/: PROFILE_FINDINGS.md, findings.json, charts/, diff/, tables/, and bs064.perfetto.json.gz for"
	@echo "ui.perfetto.dev. The report, for a browser:"
	@echo "$(CURDIR)/$(REPORT)/report.html"

test: $(VENV)/.test $(VENV)/.kernels $(VENV)/.serving
	$(PYTEST)

test-core: $(VENV)/.test
	$(PYTEST) -m "not kernels and not exhaustive"

# Every combination: for a change to what it tries, and before a release. Takes about a quarter of an hour.
test-exhaustive: $(VENV)/.test $(VENV)/.kernels
	$(PYTEST) -m exhaustive

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test $(VENV)/.kernels
	$(BIN)/pyright

floors: $(VENV)/.test
	$(BIN)/lint-imports

# The case corpus lies outside the repository; WAVEWISE_CORPUS names the folder that holds it.
corpus: $(VENV)/.core
	$(BIN)/python "$(WAVEWISE_CORPUS)/corpus/check_case.py" "$(CURDIR)/$(BIN)/wavewise analyze {input} --json {out}" "$(WAVEWISE_CORPUS)/corpus/dev" -j 2

docs: $(VENV)/.test
	$(BIN)/mkdocs build --strict --site-dir site

# Rewrites the lock files from the bounds in pyproject.toml and requirements/*.in.
lock: $(VENV)/.core
	$(PIP) install pip-tools
	$(BIN)/python -m piptools compile -q --upgrade --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-annotate --no-header -o requirements/core.lock requirements/core.in pyproject.toml
	$(BIN)/python -m piptools compile -q --upgrade --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-annotate --no-header -o requirements/test.lock requirements/test.in

clean:
	rm -rf $(VENV) $(REPORT) site

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'wavewise needs Python 3.11 or newer: make PYTHON=/path/to/python3.11')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: requirements/core.lock pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -r requirements/core.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.test: requirements/test.lock $(VENV)/.core
	$(INSTALL) -r requirements/test.lock
	@touch $@

# After the one before, which it does not need: two must not change an environment at once.
$(VENV)/.kernels: requirements/kernels.lock $(VENV)/.core | $(VENV)/.test
	$(INSTALL) -r requirements/kernels.lock
	@touch $@

$(VENV)/.serving: requirements/serving.lock $(VENV)/.test $(VENV)/.kernels
	$(INSTALL) --no-deps -r requirements/serving.lock
	@touch $@
