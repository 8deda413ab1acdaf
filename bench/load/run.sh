#!/usr/bin/env bash
# Builds the benchmark of loading optimised, installs the Python libraries, and runs it. Arguments
# are sections and options (--help).
#
# EVERMAP_BENCH_PYTHON   interpreter with numpy and safetensors; `none` for no Python. Default: a
# venv with the versions
#                        of peers/requirements.txt, made by pip in the user's cache directory
# EVERMAP_BENCH_DIR      folder on the disk to measure; default: the one for temporary files. It
# needs up to 6 GB
# EVERMAP_BENCH_RESULTS  folder for plots; default: bench/results
# EVERMAP_BENCH_QUICK    1: few small files, one round, to check that everything works
# EVERMAP_BENCH_WAIT     0: do not wait for a quiet moment before a section
# EVERMAP_BENCH_MEMORY   0: do not make the host of a virtual machine provide memory before each
# step
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"

missing=()
for tool in mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs mksquashfs:squashfs-tools mkfs.erofs:erofs-utils; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Not installed, and skipped where it is needed: ${missing[*]}" >&2
    echo "For Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
fi

if [ -z "${EVERMAP_BENCH_PYTHON:-}" ]; then
    # The folder is named after the wanted versions, and is used only once it is complete.
    wanted="$here/peers/requirements.txt"
    python="${XDG_CACHE_HOME:-$HOME/.cache}/evermap/load-bench-$(cksum <"$wanted" | cut -d ' ' -f 1)"
    if [ ! -e "$python/complete" ]; then
        rm -rf "$python"
        if python3 -m venv "$python" &&
            "$python/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$wanted"; then
            touch "$python/complete"
        else
            rm -rf "$python"
            echo "skipped: numpy and safetensors: pip could not get them (is there a network, and python3 with venv?)" >&2
        fi
    fi
    if [ -e "$python/complete" ]; then
        export EVERMAP_BENCH_PYTHON="$python/bin/python"
    fi
fi

cargo build --release --locked --manifest-path "$here/Cargo.toml"
exec "$CARGO_TARGET_DIR/release/evermap-load-bench" "$@"
