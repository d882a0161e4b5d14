# The front door. CMake does the work underneath; everything made lies under build/.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
# What the demo runs: itself, Switchyard, and the simulated GPU for machines without one.
DEMO   := demo switchyard switchyardd switchyard_shim fakecuda fakecuda_nvml
.DEFAULT_GOAL := all
.PHONY: all demo test gpu-test bench asan ubsan tsan night lint format install uninstall shipped deb \
  wheel packages slurm clean help

all: ## build everything: preload library, monitor, CLI, simulated GPU, tests and bench
	@scripts/configure.sh $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target all bench_programs

demo: ## requests beside a busy neighbour: the driver's default against Switchyard
	@scripts/configure.sh $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target $(DEMO)
	$(BUILD)/demo/demo

test: ## build and run every test; needs neither a GPU nor a CUDA toolkit
	@scripts/configure.sh $(BUILD)
	cmake --build $(BUILD) -j $(JOBS)
	scripts/run_tests.sh $(BUILD) $$((2 * $(JOBS) + 1))  # many of them wait

gpu-test: all ## run the tests that need a real GPU; without one they fail
	SWITCHYARD_REQUIRE_GPU=1 ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -L gpu

bench: all ## measure on a real GPU (bench/README.md says what and how long)
	python3 bench/run.py all --build $(BUILD)

asan ubsan tsan: ## build and run the tests under a sanitizer (asan: with ubsan), in build/NAME
	@scripts/sanitize.sh $@ $(BUILD)/$@ $(JOBS)

night: ## what .ci/run has no time for: many more seeds, and all tests under tsan
	scripts/night.sh $(BUILD) $(JOBS)

lint: ## check format, layers, documents, language, the bench and clang-tidy; changes nothing
	@scripts/configure.sh --lint $(BUILD)/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
	scripts/check_layers.py
	scripts/check_docs.sh
	scripts/check_language.py
	python3 bench/chart/draw.py --check
	python3 bench/results/page.py --check
	python3 scripts/json_reference.py --check
	scripts/check_bench.sh
	scripts/check_cache.sh $(BUILD)/lint
	scripts/check_format.sh
	scripts/check_tidy.py $(BUILD)/lint $(JOBS)

format: ## rewrite the sources as .clang-format says
	@scripts/bootstrap.sh --lint
	scripts/check_format.sh --fix

install: all ## install into PREFIX (/usr/local); DESTDIR is respected
	scripts/install.sh install $(BUILD) $(PREFIX)

uninstall: ## remove what `make install` installed there
	scripts/install.sh uninstall $(BUILD) $(PREFIX)

deb wheel packages: shipped
# A missing tool is named before the build.
shipped:
	@for each in $(filter deb wheel packages,$(MAKECMDGOALS)); do \
	  scripts/bootstrap.sh --$$each || exit 1; done
	@scripts/configure.sh $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target shipped

deb: ## make the Debian packages, in build/packages
	scripts/deb.sh $(BUILD) $(BUILD)/packages

wheel: ## make the Python wheel, in build/packages
	scripts/wheel.sh $(BUILD) $(BUILD)/packages

packages: ## make all packages and check them: lintian, units, upgrades, metrics, traces, notebooks
	scripts/check_packages.sh $(BUILD)
	scripts/check_metrics.sh $(BUILD)
	scripts/check_trace.sh $(BUILD)
	build/python-tools/bin/python -B scripts/check_kubernetes.py
	build/python-tools/bin/python -B scripts/check_jupyter.py $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target job_swap
	scripts/try_slurm.sh $(BUILD)

slurm: ## build the plugin for Slurm, build/slurm/switchyard.so; needs Slurm's headers (CPPFLAGS)
	$(MAKE) -C packaging/slurm FOLDER=$(abspath $(BUILD))/slurm

clean: ## remove build/
	rm -rf $(BUILD)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## / {n = split($$1, names, " "); \
	  for (i = 1; i <= n; i++) printf "  make %-10s %s\n", names[i], $$2}' $(MAKEFILE_LIST)
