#!/usr/bin/env bash
# Builds the benchmarks optimised and runs them; arguments are names of sections.
# `transfer`, `load`, `lane` or `cost` and what follows is for the run.sh there.
#
# EVERMAP_CORPUS     folders with documents, separated by `:`; default: examples/pages
# EVERMAP_BENCH_DIR  a folder on the disk to measure; default: the one for temporary files
set -euo pipefail
cd "$(dirname "$0")"
# Workspaces of their own, with sections and options of their own.
case "${1:-}" in
transfer | load | lane | cost)
    which="$1"
    shift
    exec "$which/run.sh" "$@"
    ;;
esac
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
# The C and C++ library, for a std::map in an object (section heap).
if [ -x ../crates/evermap-c/link.sh ]; then
    cargo build --release --locked --manifest-path ../Cargo.toml -p evermap-c
    ../crates/evermap-c/link.sh "$CARGO_TARGET_DIR/release/libevermap.a" "$CARGO_TARGET_DIR/evermap-c"
fi
cargo build --release --locked --bins
exec "$CARGO_TARGET_DIR/release/evermap-bench" "$@"
