#!/usr/bin/env bash
# Builds the viewer and its benchmark optimised, and runs it. Arguments are sections and options
# (--help).
#
# EVERMAP_COMMAND     evermap command to measure, instead of building it; `none` measures only the
# peers
# EVERMAP_CORPUS      folders with pages, separated by `:`; default: examples/pages
# EVERMAP_BENCH_DIR   folder on the disk to measure; default: the one for temporary files
# EVERMAP_BENCH_WAIT  0: do not wait for a quiet moment before a section
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$("$here/../../scripts/target-dir.sh")}"

# Programs, each with its package in Debian.
missing=()
for peer in Xvfb:xvfb dillo:dillo netsurf-fb:netsurf-fb chromium:chromium; do
    command -v "${peer%%:*}" >/dev/null || missing+=("${peer##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Not installed, and skipped where it is needed: ${missing[*]}" >&2
    echo "For Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
fi

if [ -z "${EVERMAP_COMMAND:-}" ]; then
    cargo build --release --locked --manifest-path "$here/../../Cargo.toml" \
        -p evermap-cli -p evermap-view --features evermap-cli/view
    export EVERMAP_COMMAND="$CARGO_TARGET_DIR/release/evermap"
fi
cargo build --release --locked --manifest-path "$here/Cargo.toml"
exec "$CARGO_TARGET_DIR/release/evermap-view-bench" "$@"
