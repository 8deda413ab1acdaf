#!/usr/bin/env bash
# Runs cargo-deny with the given arguments. Uses the installed one, or installs a fixed version into
# the user's cache (3 minutes of compiling, once). If that fails, prints a notice and skips the
# check, so that a machine without a network can still run the other tests.
set -euo pipefail

version=0.20.2
cache="${XDG_CACHE_HOME:-$HOME/.cache}/evermap"
tools="$cache/tools"
export PATH="$PATH:$tools/bin"

if ! command -v cargo-deny >/dev/null; then
    echo "cargo-deny is not installed; compiling version $version into $tools (about 3 minutes, once)"
    # Uses a separate target directory: cargo would lock the project's, and a clean build must not
    # repeat this.
    if ! CARGO_TARGET_DIR="$cache/tools-target" \
        cargo install cargo-deny --locked --version "$version" --root "$tools" --quiet; then
        echo
        echo "NOTICE: cargo-deny could not be installed."
        echo "NOTICE: licences, duplicate crates and sources were NOT checked."
        echo "NOTICE: try: cargo install cargo-deny --locked"
        exit 0
    fi
    rm -rf "$cache/tools-target"
fi
exec cargo-deny deny "$@"
