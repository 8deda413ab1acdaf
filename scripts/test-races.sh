#!/usr/bin/env bash
# The allocator and the lock of shared objects under tools that see what an ordinary run does not: loom (every interleaving of how
# blocks are handed over), ThreadSanitizer (data races of the stress test) and Miri (undefined
# behaviour, on the tests that need no system call). Each has a target directory of its own. What is
# not installed is skipped, visibly.
set -euo pipefail
cd "$(dirname "$0")/.."
targets="$(scripts/target-dir.sh)"
host="$(rustc -vV | sed -n 's/^host: //p')"

echo "== loom"
RUSTFLAGS="--cfg evermap_loom" CARGO_TARGET_DIR="$targets/loom" \
    cargo test --package evermap --release --locked --test remote_free --test share_lock

if ! cargo +nightly --version > /dev/null 2>&1; then
    echo "SKIPPED: ThreadSanitizer and Miri need a nightly Rust (rustup toolchain install nightly)"
    exit 0
fi

echo "== ThreadSanitizer"
if [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    EVERMAP_STRESS_HIGH=1 RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="$targets/tsan" \
        cargo +nightly test -Zbuild-std --target "$host" --package evermap --test heap_stress
else
    echo "SKIPPED: no standard library to build (rustup component add rust-src --toolchain nightly)"
fi

echo "== Miri"
if cargo +nightly miri --version > /dev/null 2>&1; then
    # The seeds come from the environment and the time is not looked at.
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" \
        CARGO_TARGET_DIR="$targets/miri" \
        cargo +nightly miri test --package evermap --lib alloc::
else
    echo "SKIPPED: no Miri (rustup component add miri --toolchain nightly)"
fi
