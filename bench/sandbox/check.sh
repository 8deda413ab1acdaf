#!/usr/bin/env bash
# Checks at a small scale that all versions of each workload reach the same result: natively, and as
# guests if a runner is given. Arguments go to `cargo test`.
#
# EVERMAP_GUEST_RUNNER  program that runs guests, called as RUNNER MODULE DATA STORE ARGUMENTS...:
# the module with these arguments, the folder DATA as its working directory, heaps in the store
# STORE
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"

if [ -n "${EVERMAP_GUEST_RUNNER:-}" ]; then
    cargo build --release --locked --manifest-path "$here/Cargo.toml" --package workloads --target wasm32-wasip1
    export EVERMAP_GUEST_MODULE="$CARGO_TARGET_DIR/wasm32-wasip1/release/workload.wasm"
else
    echo "EVERMAP_GUEST_RUNNER is not set: workloads are not checked as guests" >&2
fi
exec cargo test --locked --manifest-path "$here/Cargo.toml" --package workloads "$@"
