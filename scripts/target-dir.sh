#!/usr/bin/env bash
# Prints cargo's target directory: CARGO_TARGET_DIR, a setting of cargo, or target/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"${CARGO:-cargo}" metadata --no-deps --offline --locked --format-version 1 |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
