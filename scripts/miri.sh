#!/usr/bin/env bash
# Runs the tests of the typed layer under Miri, which sees undefined behaviour that a processor lets
# pass. Objects lie in memory of Miri's own there; property tests run a few cases each. Takes minutes.
# Without Miri it says so and is content.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "SKIPPED: Miri is not installed; install it with:" \
        "rustup toolchain install nightly --component miri,rust-src"
    exit 0
fi
# Addresses in objects are integers by design: that is what permissive provenance is for.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-permissive-provenance}"
export PROPTEST_CASES="${PROPTEST_CASES:-2}"
cargo +nightly miri test --package evermap --features serde --lib --locked -- persist:: "$@"
