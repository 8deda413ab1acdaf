#!/usr/bin/env bash
# Runs each fuzz target for a number of seconds (default 60), from the corpus in the repository. New
# inputs go to fuzz/found, failing ones to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds="${1:-60}"
export PATH="$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/evermap/tools/bin"
if ! command -v cargo-fuzz >/dev/null; then
    echo "cargo-fuzz is not installed; install it with: cargo install cargo-fuzz --locked"
    exit 1
fi
if ! rustup toolchain list | grep -q '^nightly'; then
    echo "there is no nightly Rust; install it with: rustup toolchain install nightly"
    exit 1
fi
for target in fuzz_targets/*.rs; do
    name="$(basename "$target" .rs)"
    mkdir -p "found/$name"
    cargo +nightly fuzz run "$name" "found/$name" "corpus/$name" -- \
        -max_total_time="$seconds" -max_len=40000 -rss_limit_mb=2048 -timeout=10
done
