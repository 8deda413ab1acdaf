#!/usr/bin/env bash
# Builds the command and its benchmark optimised, and runs it; arguments are names of sections and options (--help).
#
# EVERMAP_COMMAND        the evermap command to measure, instead of building it; `none` measures the peers alone
# EVERMAP_BENCH_DIR      a folder on the disk to measure; default: the one for temporary files. Up to 20 GB are needed there
# EVERMAP_BENCH_RESULTS  where plots go; default: bench/results
# EVERMAP_BENCH_QUICK    1: few small files, one round: does everything work?
# EVERMAP_BENCH_WAIT     0: do not wait for a quiet moment before a section
# EVERMAP_BENCH_MEMORY   0: do not have the host of a virtual machine give memory before each step
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$("$here/../../scripts/target-dir.sh")}"

# What a peer or a tool is called, and its package in Debian.
missing=()
for tool in perf:linux-perf strace:strace pv:pv rsync:rsync socat:socat nginx:nginx mkfs.xfs:xfsprogs \
    mkfs.btrfs:btrfs-progs mksquashfs:squashfs-tools mkfs.erofs:erofs-utils; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Not installed, and skipped where it is needed: ${missing[*]}" >&2
    echo "For Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
fi
# A copying program in Rust; Debian does not have it.
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
