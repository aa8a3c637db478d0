# Frontier Serving Lab. `make book` and `make test` are all a reader needs; each makes .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
VENV_FLAGS ?=
PORT ?= 8000
JOBS ?= 2
RUN := $(VENV)/bin/python

# An optional data folder beside the checkout: real traces and measurements. Without it the tests
# that need one skip by name, and pages and labs use the stand-in and say so.
MINILAB_DATA ?= $(abspath $(wildcard ../shared/data))
export MINILAB_DATA

# One thread per test worker: JOBS workers share the cores, and torch or BLAS would take all of them.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(RUN) -m pytest -n $(JOBS) --dist loadfile

# The stamp's name holds a checksum of what decides the environment, so a changed lock reinstalls.
LOCK := $(firstword $(shell cat requirements.txt pyproject.toml tools/make_venv.py src/minilab/__init__.py | cksum))
STAMP := $(VENV)/.lock-$(LOCK)

.PHONY: help book serve test test-slow ci-deps labs start check new bench aot shots stamp lint clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done

book: $(STAMP) ## build the course site into _build/html
	$(RUN) tools/build_book.py

serve: $(STAMP) ## show the site on http://127.0.0.1:8000 (PORT=... for another port)
	@test -f _build/html/index.html || $(RUN) tools/build_book.py
	$(RUN) tools/site_server.py --port $(PORT)

test: $(STAMP) ## lint, types, floors, tests and the solutions' stored outputs
	$(PYTEST) -m "not slow" tests
	$(PYTEST) --nbval-lax --nbval-current-env solutions

test-slow: $(STAMP) ## soaks, whole grids, site builds and all-page browser checks
	$(PYTEST) -m slow tests

ci-deps: ## system packages of the browser tests (as root on Debian or Ubuntu; else says what to do)
	@if command -v chromium >/dev/null; then echo "chromium is already here"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; \
	else echo "not root, or no apt-get: install Chromium yourself, or its tests skip with 'needs chromium'"; fi

labs: $(STAMP) ## write labs/ anew from solutions/
	$(RUN) -m minilab.lab.build

start: need-LAB ## copy a lab into work/ for you to solve: LAB=01 (never overwrites)
	@found=$$(ls labs/$(LAB)_*.ipynb 2>/dev/null) || \
	  { echo "no lab $(LAB); there are: $$(ls labs 2>/dev/null | sed -n 's/^\([0-9][0-9][a-z]*\)_.*/\1/p' | sort -u | tr '\n' ' ')" >&2; exit 2; }; \
	mkdir -p work; for lab in $$found; do mine="work/$$(basename "$$lab")"; \
	  if [ -e "$$mine" ]; then echo "$$mine is already yours and stays as it is"; \
	  else cp "$$lab" "$$mine" && echo "$$mine is ready: $(VENV)/bin/jupyter lab $$mine"; fi; done

check: need-LAB $(STAMP) ## run your copy of a lab and count its exercises: LAB=01
	$(RUN) -m minilab.lab.check_notebook $(LAB)

new: need-CHAPTER $(STAMP) ## begin a chapter page that builds: CHAPTER=name
	$(RUN) tools/new_chapter.py "$(CHAPTER)"

bench: $(STAMP) ## measure speed and memory against the floors, into benchmarks/results/
	$(RUN) benchmarks/run.py

aot: $(STAMP) ## compile every kernel for every architecture, without a GPU, into benchmarks/results/aot.json
	$(RUN) -m minilab.kernels.aot --all --json benchmarks/results/aot.json

shots: $(STAMP) ## picture every page: light, dark, phone
	$(RUN) tools/shots.py

stamp: need-REPO need-TAG $(STAMP) ## set the repository address everywhere: REPO=owner/name TAG=v0.6.0
	$(RUN) tools/stamp.py "$(REPO)" "$(TAG)"

lint: $(STAMP) ## ruff, formatting, types, floors
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports

clean: ## remove what was built (.venv and work/ stay)
	rm -rf _build build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP):
	$(PYTHON) tools/make_venv.py $(VENV) $(VENV_FLAGS)
	@rm -f $(VENV)/.lock-* && touch $@

# Asked for before anything is installed.
need-LAB:
	@test -n "$(LAB)" || { echo "LAB is missing: make $(firstword $(MAKECMDGOALS)) LAB=01" >&2; exit 2; }
need-CHAPTER:
	@test -n "$(CHAPTER)" || { echo "CHAPTER is missing: make new CHAPTER=spec-decode" >&2; exit 2; }
need-REPO:
	@test -n "$(REPO)" || { echo "REPO is missing: make stamp REPO=owner/name TAG=v0.6.0" >&2; exit 2; }
need-TAG:
	@test -n "$(TAG)" || { echo "TAG is missing: make stamp REPO=owner/name TAG=v0.6.0" >&2; exit 2; }
.PHONY: need-LAB need-CHAPTER need-REPO need-TAG
