#!/usr/bin/env bash
# Checks areas of the benchmarks: format, lints, unit tests, and each section as a quick run with
# the installed programs: check.sh [AREA ...]. Without arguments: the harness and all areas.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
areas=("$@")
if [ $# = 0 ]; then
    areas=(harness cost documents durability heap lane load sandbox transfer view)
fi
packages=(--package bench)
for area in "${areas[@]}"; do
    packages+=(--package "bench-$area")
    case "$area" in
    lane) # It runs programs in lanes, so it needs the command.
        cargo build --locked --manifest-path ../Cargo.toml --package evermap-cli
        export EVERMAP_COMMAND="${EVERMAP_COMMAND:-$CARGO_TARGET_DIR/debug/evermap}"
        ;;
    sandbox) # All versions of each workload must reach the same result, natively and as guests.
        packages+=(--package workloads)
        cargo build --locked --package bench-sandbox
        cargo build --locked --release --package workloads --target wasm32-wasip1
        export EVERMAP_GUEST_RUNNER="$PWD/sandbox/guest.sh"
        export EVERMAP_GUEST_MODULE="$CARGO_TARGET_DIR/wasm32-wasip1/release/workload.wasm"
        ;;
    esac
done
cargo fmt --all --check
cargo clippy --locked --all-targets "${packages[@]}" -- -D warnings
exec cargo test --locked "${packages[@]}"
