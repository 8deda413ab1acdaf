#!/usr/bin/env bash
# Builds the documentation with mdBook into book/ of cargo's target directory. A warning is an
# error. Uses the installed mdBook, or installs a fixed version into the user's cache (some minutes
# of compiling, once).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.5.4
cache="${XDG_CACHE_HOME:-$HOME/.cache}/evermap"
tools="$cache/tools"
export PATH="$PATH:$tools/bin"
book="$(scripts/target-dir.sh)/book"

if ! command -v mdbook >/dev/null; then
    echo "mdbook is not installed; compiling version $version into $tools (some minutes, once)"
    # Uses a separate target directory: cargo would lock the project's, and a clean build must not
    # repeat this.
    CARGO_TARGET_DIR="$cache/tools-target" "${CARGO:-cargo}" install mdbook --locked \
        --version "$version" --no-default-features --features search --root "$tools" --quiet
    rm -rf "$cache/tools-target"
fi

messages="$(mdbook build docs --dest-dir "$book" 2>&1)" || { echo "$messages" >&2; exit 1; }
if grep -E 'WARN|ERROR' <<<"$messages" >&2; then
    exit 1
fi
# Links out of docs/ lead to the clone.
find "$book" -name '*.html' -exec sed -i -E \
    -e "s#href=\"(\.\./)+(bench|crates|examples)/#href=\"file://$PWD/\2/#g" \
    -e '/href="file:/s#(file:[^"]*)/README\.html#\1/README.md#g' {} +
echo "documentation: $book/index.html"
