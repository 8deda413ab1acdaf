#!/usr/bin/env bash
# Checks the benchmark of lanes: format, lints, unit tests, and each section as a quick run with the
# installed programs.
# Arguments go to `cargo test`. bench/transfer/check.sh checks bench/common.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"
cargo fmt --check --manifest-path "$here/Cargo.toml"
cargo clippy --locked --all-targets --manifest-path "$here/Cargo.toml" -- -D warnings
# The benchmark runs programs in lanes, so it needs the command.
cargo build --locked --manifest-path "$here/../../Cargo.toml" --package evermap-cli
export EVERMAP_COMMAND="${EVERMAP_COMMAND:-$CARGO_TARGET_DIR/debug/evermap}"
exec cargo test --locked --manifest-path "$here/Cargo.toml" "$@"
