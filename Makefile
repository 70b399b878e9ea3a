# make run    the flights demo: Spark, two workers, an embedded log; FRESH=1 starts over
# make test   everything that proves the project, except the long runs; types are checked while tests run
# make help   the other targets
#
# Test files run side by side, four at a time (JOBS=n: n at a time); those of one file in one process, in order. On two cores
# four leave a fifth of the processors' time unused, as tests wait. With six, a test of a time limit failed on a busy machine.
# Nothing has to be activated: everything is installed into .venv, again only when pyproject.toml has changed.

VENV := .venv
PY := $(VENV)/bin/python
FRESH ?=
ARGS ?=
JOBS ?= 4
# Python compiles what it imports, once; pip would compile all 13,000 modules one after the other, for half a minute.
INSTALL := PYTHONWARNINGS=ignore $(PY) -m pip install -q --disable-pip-version-check --no-compile
PYTEST := $(PY) -m pytest
SIDE_BY_SIDE := -n $(JOBS) --dist loadfile --no-loadscope-reorder

KERNELS := $(wildcard dbsp/zset/kernels/*.py)

# Hundreds of processes are started: none has to compile again what the one before it has, however the machine is set up.
unexport PYTHONDONTWRITEBYTECODE

ifndef BESIDE
.NOTPARALLEL:
endif
.PHONY: help run test quick soak mutation bench check format lint types tests install site wheel clean

help:
	@echo "make run      play the flights of New York 2013 through a circuit on Spark (FRESH=1: start over)"
	@echo "make test     format, lint, types, every test but the long ones (Linux, Java 17, strace, gcc)"
	@echo "make quick    the same without Spark, Kafka and the kill tests, with a quarter of the generated examples"
	@echo "make soak     the long runs, and all tests at all kill points, on examples drawn anew"
	@echo "make mutation the mutation score: do the tests find 200 small changes of the code, as many as before?"
	@echo "make bench    the benchmarks; results are added to benchmarks/history/"
	@echo "make check    format, lint and types only; make format fixes the format"
	@echo "make install  install the project with all extras into .venv (no Java needed)"
	@echo "make site     build the documentation site in build/site, and check its links"
	@echo "make wheel    build dist/*.whl"
	@echo "make clean    remove .venv and everything built"

run: need-java $(VENV)/.demo $(VENV)/.kernels
	@FRESH="$(FRESH)" $(PY) -m examples.flights.run $(ARGS)

test: need-java need-fault $(VENV)/.test
	@$(MAKE) --no-print-directory --output-sync=target --jobs=3 BESIDE=1 $(VENV)/.kernels $(VENV)/.kafka $(VENV)/.spark lint
	@$(PY) tools/typecheck.py >$(VENV)/types.txt 2>&1 & types=$$!; \
	  DBSP_TEST_EXAMPLES=all $(PYTEST) $(SIDE_BY_SIDE) -m "not soak" $(ARGS); tests=$$?; \
	  wait $$types; types=$$?; cat $(VENV)/types.txt; test $$tests -eq 0 && test $$types -eq 0

quick: need-fault $(VENV)/.test
	@$(MAKE) --no-print-directory --output-sync=target --jobs=3 BESIDE=1 $(VENV)/.kernels check
	DBSP_TEST_EXAMPLES=few $(PYTEST) $(SIDE_BY_SIDE) -m "not (spark or kafka or crash or soak)" $(ARGS)

soak: need-java need-fault $(VENV)/.test $(VENV)/.kernels $(VENV)/.kafka $(VENV)/.spark
	$(PYTEST) -m soak --timeout 7200 $(ARGS)
	DBSP_TEST_EXAMPLES=new $(PYTEST) $(SIDE_BY_SIDE) -m "not soak" $(ARGS)
	$(PY) -m tools.mutation --fresh

mutation: $(VENV)/.test $(VENV)/.kernels
	$(PY) -m tools.mutation $(ARGS)

bench: need-java $(VENV)/.test $(VENV)/.kernels
	$(PY) -m benchmarks $(ARGS)

check: lint types

lint: $(VENV)/.test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

types: $(VENV)/.test
	$(PY) tools/typecheck.py

format: $(VENV)/.test
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

site: $(VENV)/.test
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet && echo "built build/site; to read it, with its search: python3 -m http.server -d build/site"

wheel: $(VENV)/.test
	$(PY) -m build --wheel

install: $(VENV)/.test

clean:
	rm -rf $(VENV) build dist dbsp.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: need-java need-fault

need-java:
	@tools/need java

need-fault:
	@tools/need linux strace gcc

$(VENV)/.made:
	@python=$$(tools/need python) && "$$python" -m venv $(VENV) && $(INSTALL) --upgrade pip && touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@if [ $(VENV)/.test -nt pyproject.toml ]; then touch $@; else \
	  echo "installing into $(VENV) (the first time this fetches what takes 1.3 GB on disk, most of it Spark)"; \
	  $(INSTALL) -e '.[demo]' && touch $@; fi

$(VENV)/.test: $(VENV)/.made pyproject.toml
	@echo "installing into $(VENV) (the first time this fetches what takes 1.3 GB on disk, most of it Spark)"
	@$(INSTALL) -e '.[test]' && touch $@ $(VENV)/.demo

# The kernels are compiled ahead, so that nothing stalls on it later; what is compiled already is only looked at.
$(VENV)/.kernels: $(VENV)/.demo $(KERNELS)
	@$(PY) -m dbsp.zset.kernels.compile && touch $@

# Spark's JVM starts in half the time from an archive of its classes; tests start it a hundred times.
$(VENV)/.spark: $(VENV)/.demo dbsp/runtime/spark/prepare.py
	@$(PY) -m dbsp.runtime.spark.prepare && touch $@

# Kafka's jars come while kernels are compiled and types are checked; without a network the tests that need them say so.
$(VENV)/.kafka: $(VENV)/.test tests/kafka/broker.py
	-@$(PY) -m tests.kafka.broker && touch $@
