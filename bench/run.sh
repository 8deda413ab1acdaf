#!/usr/bin/env bash
# Builds the benchmarks optimised and runs them. Arguments are sections.
# `transfer`, `load`, `lane` and `cost` select another benchmark; the remaining arguments go to its
# run.sh.
#
# EVERMAP_CORPUS     folders with documents, separated by `:`; default: examples/pages
# EVERMAP_BENCH_DIR  folder on the disk to measure; default: the one for temporary files
set -euo pipefail
cd "$(dirname "$0")"
# Separate workspaces, with their own sections and options.
case "${1:-}" in
transfer | load | lane | cost)
    which="$1"
    shift
    exec "$which/run.sh" "$@"
    ;;
esac
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
# Builds the C and C++ library for the std::map in an object (section heap).
if [ -x ../crates/evermap-c/link.sh ]; then
    cargo build --release --locked --manifest-path ../Cargo.toml -p evermap-c
    ../crates/evermap-c/link.sh "$CARGO_TARGET_DIR/release/libevermap.a" "$CARGO_TARGET_DIR/evermap-c"
fi
cargo build --release --locked --bins
exec "$CARGO_TARGET_DIR/release/evermap-bench" "$@"
