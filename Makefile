# The commands of the project. `make help` lists them.

CARGO ?= cargo
# Your own documents for `make demo`, in addition to those in examples/pages.
DOCS ?=
# Target folder of `make install`; DESTDIR is put before it and is not recorded.
PREFIX ?= /usr/local
DESTDIR ?=
# Library that `evermap load run` preloads. The command finds it there if it is installed in
# PREFIX/bin.
SHIM := libevermap_load_shim.so
SHIM_DIR = $(or $(LIBDIR),$(PREFIX)/lib)
# Seconds for each target of `make fuzz`.
SECONDS_EACH ?= 60

# Optional features of the library, which are tested as well.
FEATURES := --features evermap/serde
# Everything: the viewer and the sandbox are not default members of the workspace, because a layout
# engine and a compiler take minutes to build. One set of features for lints, tests and
# documentation, so that hardly a crate is built twice.
ALL := --workspace --features evermap/serde,evermap-cli/view,evermap-cli/sandbox
# Page that `make view` shows.
PAGE ?= examples/site/index.html

SHELL := /bin/bash
# Folder where rustup installs cargo; a shell that was opened before does not have it in PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup build install uninstall demo view sandbox check test fmt-check source-check lint unit doc docs deny test-long test-races miri test-vm fuzz \
	bench pages clean
.DEFAULT_GOAL := help

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Check for a C compiler and Rust, and install missing parts if possible
	@scripts/setup.sh

build: setup ## Build the evermap command and the library that it preloads, optimised
	$(CARGO) build --release --locked --package evermap-cli --package evermap-load-shim

demo: build ## Measure the time that reopening saves; DOCS="page.html feed.xml" adds your own documents
	@"$$(scripts/target-dir.sh)/release/evermap" demo $(DOCS)

view: ## Build the viewer and show a page in a window; PAGE=URL, file or name
	@scripts/setup.sh --with-view
	$(CARGO) build --release --locked --package evermap-cli --features view
	@scripts/view.sh "$$(scripts/target-dir.sh)/release/evermap" "$(PAGE)"

sandbox: ## Build the sandbox and run a WebAssembly guest with a persistent heap three times
	@scripts/setup.sh --with-sandbox
	$(CARGO) build --release --locked --package evermap-cli --features sandbox
	$(CARGO) build --release --locked --package evermap-guest --example guest_words --target wasm32-wasip1
	@scripts/sandbox.sh "$$(scripts/target-dir.sh)"

install: setup ## Install the C library, the one for `evermap load run`, and the help of a built command; PREFIX=/usr/local, DESTDIR= for packagers
	$(CARGO) build --release --locked --package evermap-c --package evermap-load-shim
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" crates/evermap-c/install.sh install \
		"$$(scripts/target-dir.sh)/release/libevermap.a"
	@install -D -m 755 "$$(scripts/target-dir.sh)/release/$(SHIM)" "$(DESTDIR)$(SHIM_DIR)/$(SHIM)"
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install-help.sh install "$$(scripts/target-dir.sh)/release/evermap"

uninstall: ## Remove the installed files from the same PREFIX
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" crates/evermap-c/install.sh uninstall
	@rm -f "$(DESTDIR)$(SHIM_DIR)/$(SHIM)"
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install-help.sh uninstall

# Without optimisation, which takes longer than the unit tests save. The simulated power failures of
# `evermap` and the fit of the device model need it: `make test` runs them.
check: ## Run the quick checks while you work: format, layers, lints, unit tests of the default crates
	@scripts/setup.sh --with-lints
	@$(MAKE) --no-print-directory fmt-check source-check
	$(CARGO) clippy $(FEATURES) --locked -- -D warnings
	$(CARGO) test $(FEATURES) --config profile.dev.opt-level=0 --locked --lib --bins -- --skip simulation:: --skip fit::
	@echo "make check: passed"

# Runs one job at a time, even with -j: cargo uses all cores itself.
test: ## Run the checks for every change: format, lints, all tests, documentation, licences
	@scripts/setup.sh --with-lints
	@scripts/setup-libraries.sh
	@$(MAKE) --no-print-directory fmt-check
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory doc
	@$(MAKE) --no-print-directory deny
	@echo "make test: passed"

fmt-check:
	$(CARGO) fmt --all --check

# Layers and circles of files (xtask/layers.toml), the width of comments, and links between pages.
source-check:
	$(CARGO) run --quiet --locked --package xtask -- layers
	$(CARGO) run --quiet --locked --package xtask -- widths
	$(CARGO) run --quiet --locked --package xtask -- links

# The command that `make build` makes, without the viewer and the sandbox, has lines of its own.
lint: source-check
	$(CARGO) clippy --package evermap-cli --locked -- -D warnings
	$(CARGO) clippy $(ALL) --all-targets --locked -- -D warnings
	$(CARGO) check --package evermap --package evermap-heap --locked
	@scripts/lint-guests.sh

# First the promises of the command without viewer and sandbox: how it starts, and that it names what
# it lacks.
#
# Only `build` makes the library that `evermap load run` preloads. With all targets, it uses the same
# features of dependencies as `test`.
unit:
	$(CARGO) test --package evermap-cli --test errors --test start --locked
	$(CARGO) build $(ALL) --all-targets --locked
	$(CARGO) test $(ALL) --locked

doc: ## Build the crates' documentation and the reference of the command; a warning is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(ALL) --no-deps --locked
	$(CARGO) build $(ALL) --all-targets --locked
	"$$(scripts/target-dir.sh)/debug/evermap" generate reference "$$(scripts/target-dir.sh)/doc/evermap-command.md"

docs: ## Build the book from docs/, after a check of all links between pages
	$(CARGO) run --quiet --locked --package xtask -- links
	@scripts/book.sh

deny:
	@scripts/cargo-deny.sh check --hide-inclusion-graph licenses bans sources

test-long: setup ## Run the long tests, optimised
	EVERMAP_TEST_SECONDS=14400 $(CARGO) test $(FEATURES) --release --locked -- --ignored
	EVERMAP_DAMAGES=34000 $(CARGO) test --package evermap-view --release --locked --lib damage::
	EVERMAP_TEST_SECONDS=14400 $(CARGO) test --package evermap-cli --features view --test view_trust --release --locked -- --ignored
	EVERMAP_STRESS=20 $(CARGO) test --package evermap --release --locked --test heap_stress
	EVERMAP_STEPS=100000 $(CARGO) test --package evermap-heap --release --locked --lib alloc::
	@$(MAKE) --no-print-directory test-races miri

test-races: ## Test the allocator under loom, ThreadSanitizer and Miri; the latter two need a nightly Rust
	@scripts/test-races.sh

miri: ## Test the typed layer under Miri, which detects undefined behaviour; skipped without it
	@scripts/miri.sh

# Emulated, so that it runs anywhere. Takes a quarter of an hour, including 300 s of judging crash
# points.
test-vm: setup ## Test power cuts and kills of a whole machine, and lanes on other machines (QEMU and a Debian kernel, from packages)
	@scripts/test-vm.sh

fuzz: ## Fuzz the parsing of files, SECONDS_EACH=60 a target; needs a nightly Rust and cargo-fuzz
	@scripts/fuzz.sh $(SECONDS_EACH)

bench: setup ## Compare with other libraries and print the ratios
	@bench/run.sh

pages: ## Regenerate examples/pages; changes nothing unless generate.py has changed
	python3 examples/pages/generate.py

clean: ## Remove all build results
	$(CARGO) clean
