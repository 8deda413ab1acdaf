#!/usr/bin/env bash
# guest.sh MODULE DATA STORE ARGUMENTS...: runs a guest as the benchmark does, for
# EVERMAP_GUEST_RUNNER of check.sh. Needs the
# runner: cargo build --profile runner --package runner
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec "${CARGO_TARGET_DIR:-$here/target}/runner/runner" child guest "$@"
