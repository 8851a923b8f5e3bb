# Everything runs in .venv, which is built on the first call and reused after it:
# a fresh clone needs Python 3.11 or later (with venv) and make, nothing else.

PYTHON ?= python3
# More for pytest, as in: make test PYTEST_ARGS="-k queue"
PYTEST_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/installed-for
# One environment serves the demo and the tests.
EXTRAS := plot,test

# What an installed environment depends on, as one line of text: the interpreter,
# the requirements, and the folder (the editable install holds its absolute path).
# Inside an environment the line is that of the interpreter it was made from.
FINGERPRINT := import hashlib, os, sys; \
	sys.version_info >= (3, 11) or sys.exit("sk-mice needs Python 3.11 or later (make PYTHON=...), this is " + sys.version); \
	print(hashlib.sha256(open("pyproject.toml", "rb").read()).hexdigest(), \
		ascii([sys.version, sys.base_prefix, os.getcwd(), "$(EXTRAS)"]))

.PHONY: help demo test test-slow lint clean venv
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: venv ## cluster the digits: scores, and one picture of the clusters
	$(RUN) examples/plot_digits.py

# A process for each core, and a thread in each: what they fit is too small for more.
test: lint ## lint, then the tests and the doctests
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --maxprocesses 8 $(PYTEST_ARGS)

test-slow: venv ## the tests marked slow, by name
	$(RUN) -m pytest -m slow --verbose $(PYTEST_ARGS)

lint: venv ## ruff: rules and format
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
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
	rm -f $(STAMP) && rm -rf $(VENV) && \
	$(PYTHON) -m venv $(VENV) && \
	$(RUN) -m pip install --disable-pip-version-check -e '.[$(EXTRAS)]' && \
	printf '%s\n' "$$want" > $(STAMP)
