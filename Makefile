# Everything runs in .venv, which is built on the first call and reused after it:
# a fresh clone needs Python 3.11 or later (with venv) and make, nothing else. The
# recipes are for a POSIX shell; on Windows that is Git's, which has its tools, too.

PYTHON ?= python3
# More for pytest, as in: make test PYTEST_ARGS="-k queue"
PYTEST_ARGS ?=

# Where environments have their programs.
BIN := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
VENV := .venv
RUN := $(VENV)/$(BIN)/python
STAMP := $(VENV)/installed-for
# Python compiles a module when it is first imported: all of them take a minute.
INSTALL := -m pip install --disable-pip-version-check --no-compile
# One environment serves the demo and the tests.
EXTRAS := app,test
# A process for each core, each with one thread: the fits of the tests are small. A
# process without tests takes some from another, as the longest tests come last.
WORKERS := -n auto --maxprocesses 8 --dist worksteal
# The oldest Python that is supported, and an environment of the oldest libraries.
OLDEST_PYTHON ?= python3.11
OLDEST := .venv-oldest

# Where it is set, as in many containers, each process would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# What an installed environment depends on, as one line of text: the interpreter,
# the requirements, and the folder (the editable install holds its absolute path).
# Inside an environment the line is that of the interpreter it was made from.
FINGERPRINT := import hashlib, os, sys; \
	sys.version_info >= (3, 11) or sys.exit("sk-mice needs Python 3.11 or later (make PYTHON=...), this is " + sys.version); \
	print(hashlib.sha256(open("pyproject.toml", "rb").read()).hexdigest(), \
		ascii([sys.version, sys.base_prefix, os.getcwd(), "$(EXTRAS)"]))

# What few commands need is added to the environment when the first of them is called.
with = test -e $(VENV)/with-$(1) || { \
	$(RUN) $(INSTALL) -e '.[$(1)]' && \
	touch $(VENV)/with-$(1); }

.PHONY: help demo test test-browser test-slow test-oldest lint docs docs-quick dist clean venv
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: venv ## cluster the digits: scores, a picture and a report
	$(RUN) examples/plot_digits.py

test: lint ## lint, then the tests and the doctests
	OMP_NUM_THREADS=1 $(RUN) -m pytest $(WORKERS) $(PYTEST_ARGS)

test-browser: venv ## the tests of the report in a headless Chromium
	$(RUN) -m pytest -m browser --verbose -rs tests/test_report_in_browser.py $(PYTEST_ARGS)

test-slow: venv ## the tests marked slow, by name
	$(RUN) -m pytest -m slow --verbose $(PYTEST_ARGS)

test-oldest: $(OLDEST)/installed ## the tests, with the oldest versions that are supported
	OMP_NUM_THREADS=1 $(OLDEST)/$(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

lint: venv ## ruff (rules and format), codespell and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m codespell_lib
	$(RUN) -m mypy

docs: venv ## the documentation with its examples, in docs/_build
	@$(call with,docs)
	$(RUN) -m sphinx -W --keep-going docs docs/_build

docs-quick: venv ## the same without running the examples
	@$(call with,docs)
	$(RUN) -m sphinx -W --keep-going -D plot_gallery=0 docs docs/_build

# The wheel goes into an empty environment, alone. Its dependencies come from .venv
# after that, by a path file, as another torch would take minutes and 5 GB; path files
# of .venv do not count there, so that the checkout is out of sight.
dist: venv ## wheel and sdist in dist/, checked, and run as installed
	@$(call with,dist)
	rm -rf dist build
	$(RUN) -m build
	$(RUN) -m twine check --strict dist/*
	$(RUN) -m venv build/empty
	build/empty/$(BIN)/python $(INSTALL) --no-deps dist/*.whl
	$(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$(build/empty/$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
	EAGER_IMPORT=1 build/empty/$(BIN)/python -I -c 'import sys, sk_mice; \
		assert sk_mice.__file__.startswith(sys.prefix); print(sk_mice.__version__)'
	build/empty/$(BIN)/sk-mice fit docs/images --clusters 2 --epochs 2 --out build/result --quiet

clean: ## remove the environments, caches and builds
	rm -rf $(VENV) $(OLDEST) build dist docs/_build docs/generated docs/auto_examples
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find sk_mice tests examples -name __pycache__ -prune -exec rm -rf {} +

# Phony, so that it looks every time: a file's age cannot tell that the folder moved
# or that Python was upgraded. The stamp goes first and comes last, so an
# interrupted installation leaves none and is begun again.
venv:
	@want=$$($(PYTHON) -c '$(FINGERPRINT)') || exit 1; \
	have=$$($(RUN) -c '$(FINGERPRINT)' 2>/dev/null); \
	stamp=$$(cat $(STAMP) 2>/dev/null); \
	if [ "$$want" = "$$have" ] && [ "$$want" = "$$stamp" ]; then exit 0; fi; \
	echo "Installing into $(VENV) (torch is large: this can take some minutes)" && \
	{ [ ! -L $(VENV) ] || rm $(VENV); } && rm -f $(STAMP) && rm -rf $(VENV) && \
	$(PYTHON) -m venv $(VENV) && \
	$(RUN) $(INSTALL) -e '.[$(EXTRAS)]' && \
	printf '%s\n' "$$want" > $(STAMP)

# Lower bounds of pyproject.toml become exact versions.
$(OLDEST)/installed: pyproject.toml
	rm -rf $(OLDEST)
	$(OLDEST_PYTHON) -m venv $(OLDEST)
	grep -oE '"[a-z0-9-]+(\[[a-z,]+\])?>=[0-9.]+' pyproject.toml \
		| sed -E 's/"|\[.*\]//g; s/>=/==/' > $(OLDEST)/lowest.txt
	$(OLDEST)/$(BIN)/python $(INSTALL) \
		-c $(OLDEST)/lowest.txt -e '.[test]'
	touch $@
