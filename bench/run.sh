#!/usr/bin/env bash
# Builds the benchmarks optimised and runs them; arguments are names of sections.
#
# EVERMAP_CORPUS     folders with documents, separated by `:`; default: examples/pages
# EVERMAP_BENCH_DIR  a folder on the disk to measure; default: the one for temporary files
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
# The C library, for a std::map in an object (section heap).
if [ -f ../crates/evermap-c/Cargo.toml ]; then
    cargo build --release --locked --manifest-path ../Cargo.toml -p evermap-c \
        --target-dir "$CARGO_TARGET_DIR/evermap-c"
fi
cargo build --release --locked --bins
exec "$CARGO_TARGET_DIR/release/evermap-bench" "$@"
