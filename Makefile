# `make help` lists what to ask for. Everything is made in .venv; nothing outside of this folder is
# changed, but for what `make test` does as root (see there).

PYTHON ?= python3
VENV := .venv
ONEFILE := dist/gridengine.pyz
PYTEST_ARGS ?=

# Keep bytecode: the tests start thousands of Python processes, and each would otherwise recompile
# the package.
export PYTHONDONTWRITEBYTECODE :=

METADATA := setup.cfg pyproject.toml
SOURCES := $(shell find gridengine -name '*.py' -o -name py.typed -o -path '*/static/*')

# As root on Debian the tests bring up a real Grid Engine and a real Slurm. These take no jobs of
# root, so their tests run as a plain user, who must be able to read the Python and the package:
# hence an environment outside of this folder.
WITH_CLUSTERS := $(shell test "$$(id -u)" -eq 0 && command -v apt-get)
PLAIN_VENV := /opt/gridengine-test/$(shell printf %s '$(CURDIR)' | cksum | cut -d ' ' -f 1)

# As many tests at once as there are cores; all tests on clusters run in one of those processes.
PYTEST = -m pytest --numprocesses=auto --dist=loadgroup
# Most tests of `make test-all` wait, for batch systems above all: two processes more than cores.
PYTEST_MANY = -m pytest --numprocesses=$$(($$(nproc) + 2)) --dist=loadgroup
REPORTS := .reports
ON_CLUSTERS = $(if $(WITH_CLUSTERS),GRIDENGINE_TEST_PYTHON=$(PLAIN_VENV)/bin/python \
	GRIDENGINE_REQUIRE_GRID_ENGINE=1 GRIDENGINE_REQUIRE_SLURM=1)
CLUSTERS = $(if $(WITH_CLUSTERS),$(PLAIN_VENV)/ready grid-engine slurm)
# OpenPBS and Flux are built from sources, which are asked for: folders or addresses of their
# repositories.
POOLS = $(if $(WITH_CLUSTERS),htcondor oar $(if $(OPENPBS_SOURCE),pbs) $(if $(FLUX_SOURCE),flux))

# What is measured is the package as a user would have it, beside all its peers. With a Grid Engine:
# as a plain user too.
BENCH_VENV := $(if $(WITH_CLUSTERS),$(PLAIN_VENV)-bench,.venv-bench)
BENCH_PYTHON = $$(if [ -n '$(WITH_CLUSTERS)' ]; then tools/plain-python '$(PYTHON)'; \
	else echo '$(PYTHON)'; fi)
BENCH_ARGS ?=

.PHONY: help example test test-darwin test-all test-long test-newest-python test-pythons \
	test-debian-pythons test-free-threaded test-debian-python test-slurms slurm-ready slurm-tests \
	other-pythons steady coverage bench bench-quick check format docs dist onefile clean \
	grid-engine slurm htcondor oar pbs flux \
	cpython-tests debian-packages
.DELETE_ON_ERROR:

help:
	@echo 'make example  set up .venv and run the example on the standard library of this Python'
	@echo 'make test     set up .venv and run what each change must pass: in minutes; as root on Debian'
	@echo '              on a real Grid Engine and a real Slurm too, which it brings up'
	@echo 'make test-darwin  the tests of one machine on Pythons without what macOS lacks'
	@echo 'make test-all     all other tests, on the newest Python here too: in half an hour'
	@echo 'make test-long    hours: injected faults, many random examples, every Python here'
	@echo '              (CHAOS_CALLS=10000 CHAOS_SEED=1)'
	@echo 'make test-debian-pythons  what depends on Python with 3.14 and 3.15, and'
	@echo 'make test-free-threaded   without the lock: FREE_THREADED_PYTHON, or one that it builds'
	@echo 'make test-slurms  the contract on the Slurms of newer releases of Debian, as root on Debian'
	@echo 'make steady TESTS="tests/unit/test_errors.py"   run these 20 times, and once on busy cores'
	@echo 'make coverage     which branches make test reaches, and which all but the long tests do'
	@echo '              PYTEST_ARGS="tests/integration/map -k name" selects among the tests of each'
	@echo 'make bench    measure us and our peers side by side, in over an hour, and write'
	@echo '              benchmarks/README.md; as root on real batch systems too'
	@echo '              (BENCH_ARGS="--rows map start" selects, and writes nothing)'
	@echo 'make bench-quick  us and the standard library alone, as ratios, in three minutes'
	@echo 'make htcondor oar pbs flux grid-engine slurm   as root on Debian: bring up a real one to try out'
	@echo 'make check    ruff, mypy, and whether rooms and modules import only what they may'
	@echo 'make format   let ruff lay out the code'
	@echo 'make docs     dist/site: the pages and the reference as a site, which opens from its files'
	@echo 'make dist     dist/: the sdist and the wheel, the same bytes from the same sources'
	@echo 'make onefile  dist/gridengine.pyz: all in one file, for Pythons of the version of PYTHON'
	@echo 'make clean    remove what the above made'

example: $(VENV)/ready
	$(VENV)/bin/python examples/stdlib_census.py

test: $(VENV)/ready-test $(CLUSTERS)
	$(ON_CLUSTERS) $(VENV)/bin/python $(PYTEST) --lane=test --junitxml=$(REPORTS)/test.xml \
	$(PYTEST_ARGS)

# The tests of one machine in an environment whose Pythons lack what macOS lacks.
test-darwin: $(VENV)/ready-dev
	$(MAKE) --no-print-directory VENV=$(VENV)-darwin $(VENV)-darwin/ready-test
	$(VENV)/bin/python tests/support/as_darwin.py $(VENV)-darwin/lib/python*/site-packages
	$(VENV)-darwin/bin/python $(PYTEST) --lane=test --junitxml=$(REPORTS)/test-darwin.xml \
	-m 'not grid_engine and not slurm' $(PYTEST_ARGS)

test-all: $(VENV)/ready-test $(CLUSTERS) $(ONEFILE) cpython-tests debian-packages
	$(ALL_TESTS) $(VENV)/bin/python $(PYTEST_MANY) --lane=test-all --junitxml=$(REPORTS)/test-all.xml \
	$(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,$(MAKE) --no-print-directory test-newest-python)

# All that the tests of the slower lanes need was installed above: its absence is a failure.
ALL_TESTS = $(ON_CLUSTERS) GRIDENGINE_TEST_ONEFILE=$(CURDIR)/$(ONEFILE) \
	$(if $(WITH_CLUSTERS),GRIDENGINE_REQUIRE_NODE=1 GRIDENGINE_REQUIRE_CHROMIUM=1 \
	GRIDENGINE_REQUIRE_TMUX=1 GRIDENGINE_REQUIRE_SSHD=1 GRIDENGINE_REQUIRE_MPI=1 \
	GRIDENGINE_REQUIRE_HOSTS=1)

# Ten thousand calls of each kind at each place take some ten minutes.
CHAOS_CALLS ?= 10000
CHAOS_SEED ?= 1
test-long: $(VENV)/ready-test $(CLUSTERS) $(POOLS) $(if $(WITH_CLUSTERS),debian-packages)
	$(ON_CLUSTERS) $(if $(POOLS),GRIDENGINE_REQUIRE_HTCONDOR=1 GRIDENGINE_REQUIRE_OAR=1 \
	GRIDENGINE_REQUIRE_HOSTS=1) \
	$(if $(filter pbs,$(POOLS)),GRIDENGINE_REQUIRE_PBS=1) \
	$(if $(filter flux,$(POOLS)),GRIDENGINE_REQUIRE_FLUX=1) \
	GRIDENGINE_CHAOS_CALLS=$(CHAOS_CALLS) GRIDENGINE_CHAOS_SEED=$(CHAOS_SEED) \
	$(VENV)/bin/python -m pytest --lane=test-long --capture=no \
	--junitxml=$(REPORTS)/test-long.xml $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,$(VENV)/bin/python $(PYTEST) tests/property --hypothesis-profile=deep)
	$(if $(PYTEST_ARGS),,$(MAKE) --no-print-directory test-pythons)
	$(if $(PYTEST_ARGS),,$(if $(WITH_CLUSTERS),$(MAKE) --no-print-directory test-debian-pythons \
	test-free-threaded test-slurms))

# Each Python has an environment of its own, made by the rules for .venv. .venv's own version is
# not among them: `make test` and `make test-all` have run with it.
test-pythons: other-pythons
	while read -r version; do tools/test-python $$version whole || exit 1; done \
	<$(VENV)/other-pythons

test-newest-python: other-pythons
	sort --version-sort $(VENV)/other-pythons | tail --lines=1 | xargs --no-run-if-empty \
	tools/test-python

# Pythons that this machine is not likely to have, in a root of a newer Debian.
DEBIAN_PYTHONS ?= 3.14 3.15
test-debian-pythons:
	for version in $(DEBIAN_PYTHONS); do \
	tools/in-debian forky make test-debian-python PYTHON=python$$version VENV=.venv-$$version \
	|| exit 1; done

test-debian-python:
	tools/debian-packages $(PYTHON) $(PYTHON)-venv
	$(MAKE) --no-print-directory $(VENV)/ready-test cpython-tests
	tools/test-python $(VENV:.venv-%=%)

other-pythons: $(VENV)/pyvenv.cfg
	tools/other-pythons $(VENV)/bin/python | while read -r version python; do \
	$(MAKE) --no-print-directory "VENV=.venv-$$version" "PYTHON=$$python" \
	".venv-$$version/ready-test" >&2 || exit 1; echo "$$version"; \
	done >$(VENV)/other-pythons

# Without the interpreter's lock: FREE_THREADED_PYTHON, or one that is built.
test-free-threaded:
	tools/free-threaded-python .venv-free-threaded
	.venv-free-threaded/bin/python $(PYTEST) -p no:cacheprovider \
	-m "not grid_engine and not slurm and not htcondor and not oar and not files" \
	--junitxml=$(REPORTS)/free-threaded.xml $(or $(PYTEST_ARGS),tests/unit tests/property \
	tests/contract tests/integration/executors/test_executor.py tests/chaos/test_threads.py)

# The Slurms of newer releases of Debian, each in a root of its own: 24.11 and 26.05. What is
# installed needs the network, and their daemons' ports are this machine's Slurm's.
SUITES ?= trixie forky
test-slurms:
	for suite in $(SUITES); do \
	tools/in-debian $$suite make slurm-ready && \
	tools/in-debian --alone $$suite make slurm-tests PYTEST_ARGS='$(PYTEST_ARGS)' || exit 1; done

slurm-ready: $(VENV)/ready-test $(PLAIN_VENV)/ready
	schedulers/slurm/up --install

slurm-tests: $(VENV)/ready-test $(PLAIN_VENV)/ready slurm
	GRIDENGINE_TEST_PYTHON=$(PLAIN_VENV)/bin/python GRIDENGINE_REQUIRE_SLURM=1 \
	$(VENV)/bin/python -m pytest -m slurm tests/contract \
	$(addprefix tests/integration/slurm/,test_sites.py test_steps.py) $(PYTEST_ARGS)

steady: $(VENV)/ready-test $(CLUSTERS)
	$(ON_CLUSTERS) tools/steady $(VENV)/bin/python $(TESTS)

coverage: $(VENV)/ready-test cpython-tests
	tools/coverage $(VENV)/bin/python

# Node for the examples in JavaScript; Chromium for the page, and what its driver links; tmux for
# `gridengine top`; a compiler for what shifts a clock; sshd for tunnels, which the tests start; an
# MPI for calls of several ranks; an aligner and its reads for the example of genomics; a firewall,
# a folder that is seen late and another clock for hosts of namespaces.
debian-packages:
	tools/$@ node=nodejs npm=npm chromium=chromium tmux=tmux libatomic1 gcc=gcc libc6-dev \
	/usr/sbin/sshd=openssh-server ssh=openssh-client \
	mpirun=openmpi-bin python3-mpi4py bowtie2 bowtie2-examples \
	/usr/sbin/nft=nftables bindfs faketime

cpython-tests: $(VENV)/pyvenv.cfg
	tools/cpython-tests $(VENV)/bin/python

grid-engine:
	schedulers/gridengine/up --yes

slurm htcondor oar pbs flux:
	schedulers/$@/up --yes

bench: $(BENCH_VENV)/ready $(ONEFILE) $(if $(WITH_CLUSTERS),grid-engine slurm) $(POOLS)
	$(BENCH_VENV)/bin/python -m benchmarks $(or $(BENCH_ARGS),--write)

# No peer is wanted: the environments of the tests will do.
bench-quick: $(if $(WITH_CLUSTERS),$(PLAIN_VENV)/ready,$(VENV)/ready-test)
	$(if $(WITH_CLUSTERS),$(PLAIN_VENV),$(VENV))/bin/python -m benchmarks --quick $(BENCH_ARGS)

check: $(VENV)/ready-dev
	$(VENV)/bin/python -m ruff check
	$(VENV)/bin/python -m ruff format --check
	$(VENV)/bin/python -m mypy --platform linux
	$(VENV)/bin/python -m mypy --platform darwin
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/python tools/slow_tests.py $(REPORTS)/test.xml

format: $(VENV)/ready-dev
	$(VENV)/bin/python -m ruff check --fix
	$(VENV)/bin/python -m ruff format

onefile: $(ONEFILE)

$(ONEFILE): tools/onefile tools/make-venv tools/install $(METADATA) $(SOURCES)
	tools/onefile '$(PYTHON)' $@

dist: .venv-dist/ready
	.venv-dist/bin/python tools/dist dist

.venv-dist/ready: tools/make-venv tools/install
	tools/make-venv '$(PYTHON)' .venv-dist
	tools/install .venv-dist 'setuptools==80.9.0'
	@touch $@

$(VENV)/pyvenv.cfg: tools/make-venv
	tools/make-venv '$(PYTHON)' $(VENV)

$(VENV)/ready: $(VENV)/pyvenv.cfg $(METADATA)
	tools/install $(VENV) --editable .
	@touch $@

$(VENV)/ready-test: $(VENV)/ready
	tools/install $(VENV) --editable '.[test,third-parties]'
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready
	tools/install $(VENV) --editable '.[dev]'
	@touch $@

$(PLAIN_VENV)/pyvenv.cfg: tools/make-venv tools/plain-python
	tools/make-venv "$$(tools/plain-python '$(PYTHON)')" $(PLAIN_VENV)

# Installed as a user would have it, so that what is missing from the package is found. A left-over
# build/ would go into it.
$(PLAIN_VENV)/ready: $(PLAIN_VENV)/pyvenv.cfg $(METADATA) $(SOURCES)
	rm -rf build
	tools/install $(PLAIN_VENV) '.[test,third-parties]'
	@rm -rf build
	@touch $@

$(BENCH_VENV)/pyvenv.cfg: tools/make-venv tools/plain-python
	tools/make-venv "$(BENCH_PYTHON)" $(BENCH_VENV)

# Who runs these may not write there.
$(PLAIN_VENV)/ready $(BENCH_VENV)/ready $(BENCH_VENV)-executorlib/ready: \
	export UV_COMPILE_BYTECODE = 1

# The site has an environment of its own: nothing of it is needed to run the package or its tests.
.venv-docs/ready: tools/make-venv setup.cfg
	tools/make-venv '$(PYTHON)' .venv-docs
	tools/install .venv-docs '.[docs]'
	@touch $@

docs: .venv-docs/ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict

# Those that can be installed are: what is missing is told in the tables.
$(BENCH_VENV)/ready-peers: $(BENCH_VENV)/pyvenv.cfg benchmarks/peers.txt
	tools/install $(BENCH_VENV) --requirement benchmarks/peers.txt || \
	grep -v '^#' benchmarks/peers.txt | while read -r peer; do \
	tools/install $(BENCH_VENV) "$$peer" || echo "$$peer cannot be installed"; done
	tools/install $(BENCH_VENV) numpy matplotlib
	@touch $@

# It pins an older pyzmq than we and others have.
$(BENCH_VENV)-executorlib/ready: tools/make-venv tools/plain-python
	tools/make-venv "$(BENCH_PYTHON)" $(BENCH_VENV)-executorlib
	tools/install $(BENCH_VENV)-executorlib executorlib numpy || \
	echo "executorlib cannot be installed"
	@touch $@

$(BENCH_VENV)/ready: $(BENCH_VENV)/ready-peers $(BENCH_VENV)-executorlib/ready \
	$(METADATA) $(SOURCES)
	rm -rf build
	tools/install $(BENCH_VENV) .
	@rm -rf build
	@touch $@

clean:
	rm -rf $(VENV) .venv-* build dist gridengine.egg-info .reports .mypy_cache .ruff_cache \
	.import_linter_cache .pytest_cache .hypothesis
	rm -rf $(PLAIN_VENV) $(PLAIN_VENV)-bench $(PLAIN_VENV)-bench-executorlib
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
