# make run    the embedded example: digits, 40 clients, 4 hidden contexts, six methods, and its report
# make test   lint, types, tests
# make docs   the documentation, into site/
# All set up .venv first; only Python >= 3.11 and a package index are needed.
# The requirement files are complete, so nothing is resolved when they are installed (--no-deps): pip's resolver looks at
# releases that came after the pins, and stops where one has no hash. `make lint` checks that nothing is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed
MORE := $(VENV)/.installed-for-tests
TESTS := $(DONE) $(MORE)
TRACKERS := tensorboard==2.21.0 wandb==0.31.0 mlflow-skinny==3.17.2 sqlalchemy==2.1.8 alembic==1.20.1
MODULES := torch==2.13.0 equinox==0.13.8
ACCOUNTS := dp-accounting==0.6.0

.PHONY: setup browser run docs test test-slow test-long test-track test-torch test-privacy test-wheel lint types sbom
.PHONY: deploy-demo bench track clean

setup: $(DONE)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cgpfl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(DONE): requirements.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(DONE)

# Beside the others, not after them: the two files have no package in common.
$(MORE): requirements-test.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-test.txt
	@touch $(MORE)

run: setup
	$(BIN)/cgpfl run

# The documentation: spelling, then the site, whose warnings (a dead link, a page in no menu) are errors.
$(VENV)/docs/.installed: requirements-docs.txt
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-docs.txt
	@touch $@

docs: $(VENV)/docs/.installed
	$(VENV)/docs/bin/codespell README.md CHANGELOG.md mkdocs.yml docs src examples
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build
	@echo "site/index.html"

# A Chromium for the tests of the report, where there is none: Playwright's, or the npm package's.
browser: $(TESTS)
	@$(BIN)/python tests/browser.py

# Nearly all of a test's time is compilation: programs here are compiled quickly, not for speed.
# What is skipped here runs elsewhere: trackers in test-track, PyTorch and equinox in test-torch.
# A file's tests are one worker's, and the longest files come first (tests/conftest.py): none waits for them at the end.
# DURATIONS=1 lists the files and the tests that took most processor time.
# Python keeps what it compiled, whatever the environment says: tests begin some hundred processes.
export DURATIONS
unexport PYTHONDONTWRITEBYTECODE
QUICKLY := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

test:
	@$(MAKE) --no-print-directory -j 3 browser lint types
	XLA_FLAGS="$(QUICKLY)" $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow and not long"

test-slow: $(TESTS)
	XLA_FLAGS="$(QUICKLY)" $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow

# Every block of the documentation's pages, the notebooks, all of the paper, and every method where others try one of a kind.
test-long: $(TESTS)
	$(BIN)/python -m pytest -n 2 -m long

# Trackers beside the rest: they bring some forty packages, which nothing else needs.
test-track: $(TESTS)
	$(BIN)/python -m venv $(VENV)/track
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$(echo $(VENV)/track/lib/python*/site-packages)/base.pth"
	$(VENV)/track/bin/python -m pip install --quiet --disable-pip-version-check $(TRACKERS)
	PYTHONPATH=$(CURDIR)/src $(VENV)/track/bin/python -m pytest tests/test_trackers.py

# PyTorch and equinox modules, beside the rest: torch is large, and nothing else needs it.
test-torch: $(TESTS)
	$(BIN)/python -m venv $(VENV)/torch
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$(echo $(VENV)/torch/lib/python*/site-packages)/base.pth"
	$(VENV)/torch/bin/python -m pip install --quiet --disable-pip-version-check $(MODULES)
	PYTHONPATH=$(CURDIR)/src XLA_FLAGS="$(QUICKLY)" $(VENV)/torch/bin/python -m pytest tests/models/test_torch.py \
	  tests/models/test_equinox.py "tests/test_pages.py::test_a_page_runs[guides/modules.md]"

# ε is counted by dp-accounting, beside the rest: it wants an older attrs than Flower's tests have.
test-privacy: $(TESTS)
	$(BIN)/python -m venv $(VENV)/privacy
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$(echo $(VENV)/privacy/lib/python*/site-packages)/base.pth"
	$(VENV)/privacy/bin/python -m pip install --quiet --disable-pip-version-check $(ACCOUNTS)
	PYTHONPATH=$(CURDIR)/src XLA_FLAGS="$(QUICKLY)" $(VENV)/privacy/bin/python -m pytest tests/rounds/test_account.py \
	  tests/algorithms/test_private_methods.py

lint: $(TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/requirements.py --check
	$(BIN)/python tools/licences.py
	$(BIN)/python -m pip check --disable-pip-version-check

types: $(TESTS)
	$(BIN)/mypy

# What an installed cgpfl consists of: CycloneDX. EXTRAS="report deploy" for those of extras.
EXTRAS ?= report
sbom: setup
	$(BIN)/python tools/sbom.py build/sbom.json $(EXTRAS)

# The wheel in fresh environments, without extras and with each: some minutes, and a package index.
test-wheel: setup
	$(BIN)/python tools/wheel.py

# A server and four nodes as processes, over TLS with authenticated nodes; then the same in simulation, compared.
deploy-demo: $(TESTS)
	$(BIN)/cgpfl deploy up --nodes 4 --check

# Timings beside PyTorch and beside what the machine allows; installs PyTorch, which nothing else needs.
# BENCH="--quick" or "--models mlr --clients 40" for less.
bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m benchmarks.bench $(BENCH)

# A few figures of speed, kept in benchmarks/track.jsonl: fails where one got worse by more than its noise. Before a
# release, on a quiet machine. TRACK="--quick" for less.
track: setup
	$(BIN)/python -m benchmarks.track $(TRACK)

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache
