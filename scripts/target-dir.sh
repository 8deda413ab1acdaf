#!/usr/bin/env bash
# Prints where cargo puts what it builds: CARGO_TARGET_DIR, a setting of cargo's, or target/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"${CARGO:-cargo}" metadata --no-deps --offline --locked --format-version 1 |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
