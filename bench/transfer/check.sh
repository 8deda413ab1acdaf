#!/usr/bin/env bash
# Checks the benchmark of transfers and bench/common: unit tests, cleanup after every kind of end,
# and each section as a quick run, with the installed peers and a stand-in for the command.
# Arguments go to `cargo test`.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"
exec cargo test --locked --manifest-path "$here/Cargo.toml" -p evermap-bench-common -p evermap-transfer-bench "$@"
