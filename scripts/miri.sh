#!/usr/bin/env bash
# Runs the tests of the typed layer under Miri, which detects undefined behaviour that a processor
# tolerates. Objects are in Miri's own memory; property tests run a few cases each. Takes minutes.
# Without Miri it prints a notice and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "SKIPPED: Miri is not installed; install it with:" \
        "rustup toolchain install nightly --component miri,rust-src"
    exit 0
fi
# Addresses in objects are integers by design, which needs permissive provenance.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-permissive-provenance}"
export PROPTEST_CASES="${PROPTEST_CASES:-2}"
cargo +nightly miri test --package evermap-heap --features serde --lib --locked -- persist:: "$@"
