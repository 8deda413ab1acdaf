# The commands of the project. `make help` lists them.

CARGO ?= cargo
# Documents of your own for `make demo`, beside the ones in examples/pages.
DOCS ?=
# Where `make install` puts the libraries; DESTDIR stands before it and is written nowhere.
PREFIX ?= /usr/local
DESTDIR ?=
# What `evermap load run` preloads; it looks there if it is in PREFIX/bin itself.
SHIM := libevermap_load_shim.so
SHIM_DIR = $(or $(LIBDIR),$(PREFIX)/lib)
# How long `make fuzz` takes over each target.
SECONDS_EACH ?= 60

# What is optional in the library is tested as well.
FEATURES := --features evermap/serde
# The viewer and the sandbox, which are no default members of the workspace: a layout engine and a compiler
# take minutes to build. Apart, so that neither is built again for what the other makes of a dependency.
VIEWER := --package evermap-view --package evermap-tv --package evermap-cli --features evermap-cli/view
SANDBOX := --package evermap-wasm --package evermap-cli --features evermap-cli/sandbox
# All of `evermap-wasm`; of the command, the one of the same name.
SANDBOX_TESTS := $(patsubst crates/evermap-wasm/tests/%.rs,--test %,$(wildcard crates/evermap-wasm/tests/*.rs))
# What `make view` shows.
PAGE ?= examples/site/index.html

SHELL := /bin/bash
# rustup puts cargo here, and a shell that was open before doesn't know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup build install uninstall demo view sandbox test fmt-check lint unit doc deny test-long test-races miri test-vm fuzz \
	bench pages clean
.DEFAULT_GOAL := help

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Check that a C compiler and Rust are there, and install what can be
	@scripts/setup.sh

build: setup ## Build the evermap command and the library that it preloads, optimised
	$(CARGO) build --release --locked --package evermap-cli --package evermap-load-shim

demo: build ## Measure what reopening saves; DOCS="page.html feed.xml" adds your own
	@"$$(scripts/target-dir.sh)/release/evermap" demo $(DOCS)

view: ## Build the viewer and show a page in a window; PAGE=URL, file or name
	@scripts/setup.sh --with-view
	$(CARGO) build --release --locked --package evermap-cli --features view
	@scripts/view.sh "$$(scripts/target-dir.sh)/release/evermap" "$(PAGE)"

sandbox: ## Build the sandbox and run a WebAssembly guest whose heap lasts, three times
	@scripts/setup.sh --with-sandbox
	$(CARGO) build --release --locked --package evermap-cli --features sandbox
	$(CARGO) build --release --locked --package evermap-guest --example guest_words --target wasm32-wasip1
	@scripts/sandbox.sh "$$(scripts/target-dir.sh)"

install: setup ## Install the C library and that of `evermap load run`; PREFIX=/usr/local, DESTDIR= for packagers
	$(CARGO) build --release --locked --package evermap-c --package evermap-load-shim
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" crates/evermap-c/install.sh install \
		"$$(scripts/target-dir.sh)/release/libevermap.a"
	@install -D -m 755 "$$(scripts/target-dir.sh)/release/$(SHIM)" "$(DESTDIR)$(SHIM_DIR)/$(SHIM)"

uninstall: ## Take the libraries away again, from the same PREFIX
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" crates/evermap-c/install.sh uninstall
	@rm -f "$(DESTDIR)$(SHIM_DIR)/$(SHIM)"

# One after the other, whatever -j says: cargo uses the cores itself.
test: ## Everything a change has to pass: format, lints, all tests, documentation, licences
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

lint:
	$(CARGO) clippy $(FEATURES) --all-targets --locked -- -D warnings
	$(CARGO) clippy $(VIEWER) --all-targets --locked -- -D warnings
	$(CARGO) clippy $(SANDBOX) --all-targets --locked -- -D warnings
	$(CARGO) check --package evermap --locked
	@scripts/lint-guests.sh

unit:
	$(CARGO) build --package evermap-load-shim --locked
	$(CARGO) test $(FEATURES) --locked
	$(CARGO) test --package evermap-view --package evermap-tv --locked
	$(CARGO) test --package evermap-cli --features view --test view --test view_documents --test view_trust --test view_window --locked
	$(CARGO) test $(SANDBOX) --locked --lib $(SANDBOX_TESTS)
	$(CARGO) test $(SANDBOX) --locked --doc

doc: ## Build the documentation of the crates; a warning is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(FEATURES) --no-deps --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --package evermap-view --package evermap-tv --no-deps --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(SANDBOX) --no-deps --locked

deny:
	@scripts/cargo-deny.sh check --hide-inclusion-graph licenses bans sources

test-long: setup ## The tests that take long, optimised
	EVERMAP_TEST_SECONDS=14400 $(CARGO) test $(FEATURES) --release --locked -- --ignored
	EVERMAP_DAMAGES=34000 $(CARGO) test --package evermap-view --release --locked --lib damage::
	EVERMAP_TEST_SECONDS=14400 $(CARGO) test --package evermap-cli --features view --test view_trust --release --locked -- --ignored
	EVERMAP_STRESS=20 $(CARGO) test --package evermap --release --locked --test heap_stress
	EVERMAP_STEPS=100000 $(CARGO) test --package evermap --release --locked --lib alloc::
	@$(MAKE) --no-print-directory test-races miri

test-races: ## The allocator under loom, ThreadSanitizer and Miri; the latter two need a nightly Rust
	@scripts/test-races.sh

miri: ## The typed layer under Miri, which sees undefined behaviour; skipped without it
	@scripts/miri.sh

# Emulated, so that it runs anywhere: a quarter of an hour, much of it the 300 s that cuts are judged for.
test-vm: setup ## Power cuts and kills of a whole machine, lanes on other machines (QEMU and a Debian kernel, from packages)
	@scripts/test-vm.sh

fuzz: ## Fuzz the parsing of files, SECONDS_EACH=60 a target; needs a nightly Rust and cargo-fuzz
	@scripts/fuzz.sh $(SECONDS_EACH)

bench: setup ## Compare with other libraries and print the ratios
	@if [ -x bench/run.sh ]; then bench/run.sh; else echo "bench/run.sh is not there"; exit 1; fi

pages: ## Write examples/pages anew; nothing changes unless generate.py did
	python3 examples/pages/generate.py

clean: ## Remove what was built
	$(CARGO) clean
