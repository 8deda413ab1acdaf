#!/usr/bin/env bash
# Builds the command and its benchmark optimised, and runs it. Arguments are sections and options
# (--help).
#
# EVERMAP_COMMAND        evermap command to measure, instead of building it; `none` measures only
# the peers
# EVERMAP_BENCH_DIR      folder on the disk to measure; default: the one for temporary files. It
# needs up to 20 GB
# EVERMAP_BENCH_RESULTS  folder for plots; default: bench/results
# EVERMAP_BENCH_QUICK    1: few small files, one round, to check that everything works
# EVERMAP_BENCH_WAIT     0: do not wait for a quiet moment before a section
# EVERMAP_BENCH_MEMORY   0: do not make the host of a virtual machine provide memory before each
# step
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$("$here/../../scripts/target-dir.sh")}"

# Programs, each with its package in Debian.
missing=()
for tool in perf:linux-perf strace:strace pv:pv rsync:rsync socat:socat nginx:nginx mkfs.xfs:xfsprogs \
    mkfs.btrfs:btrfs-progs mksquashfs:squashfs-tools mkfs.erofs:erofs-utils; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Not installed, and skipped where it is needed: ${missing[*]}" >&2
    echo "For Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
fi
# xcp is a copying program in Rust that Debian does not package.
export PATH="$PATH:$CARGO_TARGET_DIR/peers/bin"
if ! command -v xcp >/dev/null; then
    echo "Not installed, and skipped: xcp. It comes with" >&2
    echo "    cargo install --locked --root $CARGO_TARGET_DIR/peers xcp" >&2
fi

if [ -z "${EVERMAP_COMMAND:-}" ]; then
    cargo build --release --locked --manifest-path "$here/../../Cargo.toml" -p evermap-cli
    export EVERMAP_COMMAND="$CARGO_TARGET_DIR/release/evermap"
fi
cargo build --release --locked --manifest-path "$here/Cargo.toml"
exec "$CARGO_TARGET_DIR/release/evermap-transfer-bench" "$@"
