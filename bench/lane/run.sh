#!/usr/bin/env bash
# Builds the benchmark of lanes and the command optimised, and runs it. Arguments are sections and
# options (--help).
#
# EVERMAP_BENCH_DIR      folder on the disk to measure; default: the one for temporary files
# EVERMAP_BENCH_RESULTS  folder for plots; default: bench/results
# EVERMAP_BENCH_QUICK    1: short turns, one round, to check that everything works
# EVERMAP_BENCH_WAIT     0: do not wait for a quiet moment before a section
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"

missing=()
for tool in stress-ng ffmpeg; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Not installed, and skipped where it is needed: ${missing[*]}" >&2
    echo "For Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
fi

cargo build --release --locked --manifest-path "$here/Cargo.toml"
# The command runs programs in lanes, and is the guardian of those that hold a core.
cargo build --release --locked --manifest-path "$here/../../Cargo.toml" --package evermap-cli
exec "$CARGO_TARGET_DIR/release/evermap-lane-bench" --evermap "$CARGO_TARGET_DIR/release/evermap" "$@"
