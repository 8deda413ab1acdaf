#!/usr/bin/env bash
# guest.sh MODULE DATA STORE ARGUMENTS...: runs a guest as the benchmark does. Set it as
# EVERMAP_GUEST_RUNNER to check the workloads as guests, too. Needs bench-sandbox to be built.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec "${CARGO_TARGET_DIR:-$here/../target}/debug/bench-sandbox" child guest "$@"
