# Every target sets up what it needs. Requirements: Python 3.11 or newer and network access to a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
# Two more than the processors, as many tests wait for servers and child processes.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

# The pages' tests of accessibility need it, and say so where they are skipped.
AXE := tests/support/axe/node_modules/.package-lock.json

# Clients whose requirements exclude those of others, and the tools of `ci` for workflows and releases. Each has tests and an
# environment of its own, with the extra of its name and the dependency group `integration`, if nothing else is stated.
CLIENTS := ci ray litellm tables mlflow wandb vertex
EXTRA_ray := ray,s3,video
EXTRA_litellm := litellm,video
EXTRA_tables := parquet
GROUP_tables := tables
GROUP_mlflow := mlflow-server
GROUP_vertex := vertex-client
EXTRA_ci := label
GROUP_ci := ci
# Its tests wait for installers. The others start a cluster or a server for all of their tests.
WORKERS_ci := 2
EXTRA_docs := label
GROUP_docs := docs

.PHONY: demo quick test golden readings mutants mutants-changed integration soak check figures sentences reference docs screenshots calibration copy-bar bench
.PHONY: bench-scale probe weight wheel newest clean

# Shows pip's work as a line for each package.
PROGRESS := /^Collecting/ { sub(/[^A-Za-z0-9._-].*/, "", $$2); print "  " $$2; fflush() } /^Installing coll/ { print "  installing"; fflush() }
SHELL := bash
# Else each process of the tests compiles the plug-ins of pytest anew.
unexport PYTHONDONTWRITEBYTECODE
.SHELLFLAGS := -o pipefail -c

# Only what the demo uses, a quarter of it all. $(READY) adds the rest to the same environment.
$(DEMO): pyproject.toml
	@echo "Setting up $(VENV), once: a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --no-compile --progress-bar off --editable ".[ocr]" | awk '$(PROGRESS)'
	@touch $(DEMO)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[ocr,video,svg,codes,gcs,s3,hf,parquet,label]" --group dev
	touch $(DEMO) $(READY)

$(AXE): tests/support/axe/package-lock.json
	npm ci --silent --no-audit --no-fund --fetch-retries 0 --fetch-timeout 20000 --prefix tests/support/axe || echo "no axe-core: the tests of accessibility are skipped (they need npm)"

demo: $(DEMO)  ## Run the quickstart suites, with no key and no network
	$(BIN)/visioneval run suites/gecko_offline/suite.yaml
	$(BIN)/visioneval run suites/quickstart/suite.yaml
	@echo
	@echo "You saw two suites: questions about two posters, and exact copy, sizes and masks of a flyer, a screen and an edit."
	@echo "Their mock model draws flaws on purpose: 4 and 17 cells had to fail, and did. If one had passed, the exit code would be 1."
	@echo "See one failure:  $(BIN)/visioneval show latest@mock,flaw=typo flyer"
	@echo "See the report:   $(BIN)/visioneval report latest --open"

quick: $(READY)  ## The fast tests: no kills, wheels, browsers or whole suites
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test: $(READY) $(AXE)
	$(BIN)/python -m pytest -n $(WORKERS)

golden: $(READY)  ## All that is printed and written about runs, and the help; UPDATE_GOLDEN=1 writes it anew, to review it as a diff
	$(BIN)/python -m pytest -n 0 tests/report tests/cli/test_help.py tests/cli/test_settings.py

readings: $(READY)  ## Records what OCR's models read in the images of tests whose subject is not OCR
	RECORD_READINGS=1 $(BIN)/python -m pytest -n $(WORKERS)

mutants: $(READY)  ## Plants each bug of tests/mutants, which a test must find; takes minutes, NAMES="throttle cache:3" chooses
	$(BIN)/python -m tests.mutants $(NAMES)

mutants-changed: $(READY) .integration/ci/.ready  ## Plants what Cosmic Ray makes of the lines that differ from a commit, SINCE=main
	.integration/ci/bin/python -m tests.mutants.changed $(or $(SINCE),main) build/mutants/changed.yaml
	$(BIN)/python -m tests.mutants --lists build/mutants

.integration/%/.ready: pyproject.toml
	$(PYTHON) -m venv .integration/$*
	.integration/$*/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.integration/$*/bin/python -m pip install --quiet --no-compile --editable ".[ocr,$(or $(EXTRA_$*),$*)]" --group $(or $(GROUP_$*),integration)
	touch $@

# LiteLLM's proxy is a server of its own: what it requires excludes what this program requires.
.integration/litellm_proxy/.ready: pyproject.toml
	$(PYTHON) -m venv .integration/litellm_proxy
	.integration/litellm_proxy/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.integration/litellm_proxy/bin/python -m pip install --quiet --no-compile "litellm[proxy]==1.83.*"
	touch $@

integration: $(CLIENTS:%=integration-%)  ## The tests of heavy clients, which never enter .venv; `make --jobs 2` does two at once

integration-%: .integration/%/.ready
	.integration/$*/bin/python -m pytest -n $(or $(WORKERS_$*),0) --dist loadfile tests/integration/$*

integration-litellm: .integration/litellm_proxy/.ready

soak: $(READY) .integration/ray/.ready  ## Takes minutes: many kills, many faults, many cells; prints the measurements
	$(BIN)/python -m pytest -n 0 tests/soak
	.integration/ray/bin/python -m pytest tests/integration/ray_soak
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -n $(WORKERS) -m hypothesis

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/cli/test_start_up.py

figures: $(READY)  ## How long functions are, how names repeat, how deep a call goes
	$(BIN)/python tests/figures.py

sentences: $(READY)  ## Every sentence that a user can see, to be read by an editor
	$(BIN)/python tests/sentences.py

reference: $(READY)  ## Fills the tables in docs/ that come from the code
	$(BIN)/python docs/site/fill.py

docs: .integration/docs/.ready  ## The pages of docs/ as a site in build/docs, strict and without network
	NO_MKDOCS_2_WARNING=1 .integration/docs/bin/mkdocs build --quiet --config-file docs/site/mkdocs.yml

screenshots: $(READY)  ## The image of the README, from a run of the quickstart; needs Chromium
	$(BIN)/python tests/screenshots.py

calibration: $(READY)  ## Simulates every interval and test of docs/statistics.md; takes minutes
	for module in intervals quantiles comparison plan gates until regression drift metrics must_pass agreement correction ranking; do $(BIN)/python -m tests.calibration.$$module || exit 1; done

copy-bar: $(READY)  ## What the text grader decides over images whose copy is known; minutes of CPU, ARGS="--part cards --out FILE"
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.calibration.copy_bar $(ARGS)

bench: $(READY)
	$(BIN)/python -m tests.bench.engine
	$(BIN)/python -m tests.bench.cells
	$(BIN)/python -m tests.bench.measured
	$(BIN)/python -m tests.bench.local
	$(BIN)/python -m tests.bench.report
	$(BIN)/python -m tests.bench.compare
	$(BIN)/python -m tests.bench.large
	$(BIN)/python -m tests.bench.datasets

bench-scale: .integration/ray/.ready  ## Two workers of a Ray cluster beside one process, and a simulation of large clusters
	.integration/ray/bin/python -m tests.bench.scale
	.integration/ray/bin/python -m tests.bench.cluster_costs

probe: $(READY)  ## Which perturbations the graders catch, on shipped suites and real edits; a quarter of an hour of CPU, LIMIT=1 bounds it
	$(BIN)/python -m tests.bench.probe $(if $(LIMIT),--limit $(LIMIT))

weight: .integration/ci/.ready  ## The megabytes that visioneval and each extra take, as in docs/how_to/install.md
	.integration/ci/bin/python -m tests.bench.weight

wheel:  ## The wheel and the sdist, checked; each runs in an environment without extras, and the wheel also reads text
	rm -rf dist build/wheel build/sdist build/tools
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/tools/bin/python -m pip install --quiet --group release
	build/tools/bin/python -m build --outdir dist .
	build/tools/bin/twine check --strict dist/*
	$(PYTHON) -m venv build/wheel
	$(PYTHON) -m venv build/sdist
	build/wheel/bin/python -m pip install --quiet "$$(ls dist/*.whl)"
	build/sdist/bin/python -m pip install --quiet "$$(ls dist/*.tar.gz)"
	for kind in wheel sdist; do (cd build/$$kind && bin/visioneval init first && bin/visioneval run first/suite.yaml --model "*none" --grader place --grader file) || exit 1; done
	build/wheel/bin/python -m pip install --quiet "$$(ls dist/*.whl)[ocr]"
	cd build/wheel && bin/visioneval run first/suite.yaml

newest:  ## The newest dependencies, also beyond their upper bounds, in .integration/newest; writes build/newest.md
	$(PYTHON) tests/newest.py

clean:
	rm -rf $(VENV) .integration dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
