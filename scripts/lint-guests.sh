#!/usr/bin/env bash
# Runs clippy over the crates for guests: much of their code is compiled for that target only.
# Prints a notice and skips the lints if the target isn't installed.
set -euo pipefail
cd "$(dirname "$0")/.."

CARGO="${CARGO:-cargo}"
TARGET=wasm32-wasip1

library="$("${RUSTC:-rustc}" --print target-libdir --target "$TARGET" 2>/dev/null || true)"
if [ -z "$library" ] || [ ! -d "$library" ]; then
    echo "SKIPPED: lints of the crates for guests: add their target with \`rustup target add $TARGET\`" >&2
    exit 0
fi
set -x
"$CARGO" clippy --package evermap-heap --package evermap-guest --all-targets --all-features --target "$TARGET" --locked -- -D warnings
