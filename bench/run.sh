#!/usr/bin/env bash
# Runs an area of the benchmarks, optimised: run.sh [AREA [SECTION ...] [OPTIONS]]. `--help` lists
# the areas, README.md the environment variables.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec cargo run --quiet --release --locked --package bench -- "$@"
