# Every habit of the project, each doing its own set-up in .venv.
# `make demo` and `make test` need only python3 (3.11 or newer), its venv module and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# mypy cannot follow setuptools' package-dir mapping, so it reads the same tree through links.
TYPED := $(VENV)/typed/regbayes
# Compilation keeps one core busy: a worker for each of two.
WORKERS := --numprocesses 2 --dist worksteal
SUBPACKAGES := datasets diagnostics inference models

.PHONY: help demo test test-slow faults lint format bench bench-page notebooks gallery pages clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       install into $(VENV), draw a posterior, print its convergence, write plots to demo/"
	@echo "make test       the test suite (minutes; two thirds of them the second time)"
	@echo "make test-slow  what it leaves out: long statistical checks, every kernel's resumption, the notebooks"
	@echo "make faults     plant faults one at a time; which test sees each? (a quarter of an hour)"
	@echo "make lint       ruff and mypy"
	@echo "make format     let ruff mend what it can"
	@echo "make bench      race the kernels against their peers, into bench/"
	@echo "make bench-page docs/benchmarks.md from the files of docs/benchmarks/"
	@echo "make notebooks  execute the teaching notebooks"
	@echo "make gallery    a picture of every model into docs/gallery/ (minutes)"
	@echo "make pages      docs/reproduction.md from the files of docs/results/"
	@echo "make clean      remove $(VENV), caches and outputs"

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regbayes needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/regbayes demo

test: $(READY)
	$(BIN)/python -m pytest $(WORKERS)

test-slow: $(READY)
	$(BIN)/python -m pytest $(WORKERS) -m slow

faults: $(READY)
	$(BIN)/python tests/faults/plant.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TYPED) && mkdir -p $(TYPED)
	ln -s $(addprefix $(CURDIR)/,$(wildcard regbayes/* $(SUBPACKAGES))) $(TYPED)
	MYPYPATH=$(VENV)/typed $(BIN)/mypy --package regbayes

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers need an older scikit-learn, hence an environment of their own.
.venv-peers/.ready: benchmarks/peers/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

bench: $(READY) .venv-peers/.ready
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/svm.py
	$(BIN)/python benchmarks/isvm.py
	$(BIN)/python benchmarks/m2dpm.py
	$(BIN)/python benchmarks/pipelines.py
	$(BIN)/python benchmarks/duality.py
	$(BIN)/python benchmarks/bmc.py
	$(BIN)/python benchmarks/topics.py --only speed
	$(BIN)/python benchmarks/ilsvm.py

bench-page: $(READY)
	$(BIN)/python benchmarks/races.py --out docs/benchmarks > docs/benchmarks.md

notebooks: $(READY)
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace examples/notebooks/*.ipynb

gallery: $(READY)
	$(BIN)/python examples/gallery.py

pages: $(READY)
	$(BIN)/regbayes reproduce --page --out docs/results > docs/reproduction.md

clean:
	rm -rf $(VENV) .venv-peers .cache .mypy_cache .pytest_cache .ruff_cache build dist demo bench reproduced *.egg-info
