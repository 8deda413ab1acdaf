#!/usr/bin/env bash
# Tests the allocator and the lock of shared objects with tools that find rare errors: loom (every
# interleaving of remote frees), ThreadSanitizer (data races in the stress test) and Miri (undefined
# behaviour, in the tests that need no system call). Each has its own target directory. Prints a
# notice for each tool that is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
targets="$(scripts/target-dir.sh)"
host="$(rustc -vV | sed -n 's/^host: //p')"

echo "== loom"
RUSTFLAGS="--cfg evermap_loom" CARGO_TARGET_DIR="$targets/loom" \
    cargo test --package evermap-heap --package evermap --release --locked --test remote_free --test share_lock

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
    # The seeds come from the environment, and there is no time limit.
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" \
        CARGO_TARGET_DIR="$targets/miri" \
        cargo +nightly miri test --package evermap-heap --lib alloc::
else
    echo "SKIPPED: Miri is not installed (rustup component add miri --toolchain nightly)"
fi
