#!/usr/bin/env bash
# Runs cargo-deny with the arguments given. Takes the one that is installed; else installs a fixed
# version into the user's cache (3 minutes of compiling, once); if that fails, says so and leaves
# the check out: a machine without a network can still run the other tests.
set -euo pipefail

version=0.20.2
cache="${XDG_CACHE_HOME:-$HOME/.cache}/evermap"
tools="$cache/tools"
export PATH="$PATH:$tools/bin"

if ! command -v cargo-deny >/dev/null; then
    echo "cargo-deny is not installed; compiling version $version into $tools (about 3 minutes, once)"
    # A target directory of its own: cargo would lock ours, and a clean build must not repeat this.
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
