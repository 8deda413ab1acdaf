#!/usr/bin/env bash
# Checks that the benchmark of lanes works: its form, what it counts and prints, and each section in small, with what is here.
# Arguments go to `cargo test`. What it shares with others (bench/common) is checked by bench/transfer/check.sh.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"
cargo fmt --check --manifest-path "$here/Cargo.toml"
cargo clippy --locked --all-targets --manifest-path "$here/Cargo.toml" -- -D warnings
# It runs programs in lanes.
cargo build --locked --manifest-path "$here/../../Cargo.toml" --package evermap-cli
export EVERMAP_COMMAND="${EVERMAP_COMMAND:-$CARGO_TARGET_DIR/debug/evermap}"
exec cargo test --locked --manifest-path "$here/Cargo.toml" "$@"
