#!/usr/bin/env bash
# Runs a WebAssembly guest three times: each run finds the data of the earlier ones in its heap.
#
#   scripts/sandbox.sh TARGET-DIR
set -euo pipefail
evermap=$1/release/evermap
guest=$1/wasm32-wasip1/release/examples/guest_words.wasm
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
export EVERMAP_STORE=$store/store
for words in "one two" "two three" "three three"; do
    # shellcheck disable=SC2086 # splits into words on purpose
    echo "\$ evermap sandbox run guest_words.wasm --report -- $words"
    # shellcheck disable=SC2086
    "$evermap" sandbox run "$guest" --report -- $words
    echo
done
echo "\$ evermap sandbox list"
"$evermap" sandbox list
echo
printf 'To run it yourself: %q sandbox run %q -- some words\n' "$evermap" "$guest"
