#!/usr/bin/env bash
# Builds the workloads natively and as guests, makes the data sets, and compares files with heaps.
# Arguments are sections (--help). Tables are printed, and written to the results folder with the
# raw figures.
#
# EVERMAP_BENCH_DIR      folder on the disk to measure; default: one of temporary files. It keeps
# data sets and compiled
#                        modules for the next run: 1.5 GB, and as much again during a run
# EVERMAP_BENCH_RESULTS  folder for tables.md, figures.csv and goals.json; default: results in that
# folder
# EVERMAP_BENCH_ROUNDS   number of rounds; default: 11
# EVERMAP_BENCH_QUICK    1: small data, two rounds, to check that everything works
# EVERMAP_BENCH_WAIT     0: do not wait for a quiet moment before a section
# EVERMAP_BENCH_MEMORY   0: do not make the host of a virtual machine provide memory before each
# step
# EVERMAP_WORDNET        folder with WordNet's index files; default: /usr/share/wordnet
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"
export EVERMAP_BENCH_DIR="${EVERMAP_BENCH_DIR:-${TMPDIR:-/tmp}/evermap-sandbox-bench}"
export EVERMAP_BENCH_RESULTS="${EVERMAP_BENCH_RESULTS:-$EVERMAP_BENCH_DIR/results}"

cd "$here"
cargo build --release --locked --package workloads
cargo build --release --locked --package workloads --target wasm32-wasip1
cargo build --profile runner --locked --package runner
export EVERMAP_BENCH_WORKLOAD="$CARGO_TARGET_DIR/release/workload"
export EVERMAP_BENCH_MODULE="$CARGO_TARGET_DIR/wasm32-wasip1/release/workload.wasm"
runner="$CARGO_TARGET_DIR/runner/runner"

if [ "${1:-}" = "--help" ] || [ "${1:-}" = "-h" ]; then
    exec "$runner" --help
fi

scale=1
if [ "${EVERMAP_BENCH_QUICK:-}" = 1 ]; then
    scale=0.02
fi
# The scale is part of the folder's name, because another scale is another data set.
export EVERMAP_BENCH_DATA="$EVERMAP_BENCH_DIR/data-$scale"
wordnet="${EVERMAP_WORDNET:-/usr/share/wordnet}"
sets=(cache mail)
if [ -e "$wordnet/index.noun" ]; then
    sets=(words text "${sets[@]}")
else
    echo "WordNet is not installed: spell-check is skipped. For Debian: apt-get install wordnet-base" >&2
fi
mkdir -p "$EVERMAP_BENCH_DATA" "$EVERMAP_BENCH_RESULTS"
for set in "${sets[@]}"; do
    # The mark is written last, so that an incomplete set is made again.
    if [ ! -e "$EVERMAP_BENCH_DATA/.made-$set" ]; then
        "$CARGO_TARGET_DIR/release/generate" "$set" --data "$EVERMAP_BENCH_DATA" --scale "$scale" \
            --wordnet "$wordnet" >&2
        touch "$EVERMAP_BENCH_DATA/.made-$set"
    fi
done

"$runner" "$@" | tee "$EVERMAP_BENCH_RESULTS/tables.md"
