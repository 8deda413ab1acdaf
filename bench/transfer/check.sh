#!/usr/bin/env bash
# Checks that the benchmark of transfers works, and what it shares with others (bench/common): what it reads, counts and prints,
# that nothing stays behind however it ends, and each section in small, with the peers that are there and a stand-in for the
# command. Arguments go to `cargo test`.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"
exec cargo test --locked --manifest-path "$here/Cargo.toml" -p evermap-bench-common -p evermap-transfer-bench "$@"
