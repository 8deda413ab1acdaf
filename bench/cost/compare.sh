#!/usr/bin/env bash
# Counts instructions, system calls and flushes of frequent operations, here and at an earlier
# commit, and prints the ratios:
#
#   bench/run.sh cost COMMIT
#
# Counts depend neither on other processes nor on the machine's speed. valgrind counts a `rep stos`
# once for each byte, so clearing a lot of memory counts for more than its real cost. Needs valgrind
# and strace.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
commit="${1:?which commit to compare with}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/../target/cost}"
for tool in valgrind strace; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done

folder="$(mktemp -d)"
export XDG_STATE_HOME="$folder/state"
before="$folder/source"
trap 'git -C "$here" worktree remove --force "$before" || true; rm -rf "$folder"' EXIT
git -C "$here" worktree add --quiet --detach "$before" "$commit"
# In the other tree, the program is a workspace of its own. The library there may need other
# versions of crates.
rm -rf "$before/bench"
mkdir -p "$before/bench/cost"
cp -r "$here/src" "$here/Cargo.toml" "$before/bench/cost/"
printf '\n[workspace]\n\n[profile.release]\nlto = "thin"\ncodegen-units = 4\ndebug = 1\n' \
    >>"$before/bench/cost/Cargo.toml"

cargo build --release --locked --manifest-path "$here/Cargo.toml"
cp "$CARGO_TARGET_DIR/release/bench-cost" "$folder/after"
cargo build --release --manifest-path "$before/bench/cost/Cargo.toml"
cp "$CARGO_TARGET_DIR/release/bench-cost" "$folder/before"

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : //p'
}
calls() {
    strace -f -c -o "$folder/calls" "$@"
    awk '$NF == "total" { print $4 }' "$folder/calls"
}
flushes() {
    # Writes that flush have the flag RWF_DSYNC.
    strace -f -o "$folder/flushes" -e trace=fsync,fdatasync,pwritev2 "$@"
    grep -cE 'sync\(|RWF_DSYNC' "$folder/flushes" || true
}
# Uses a fresh copy of the store, because remains of earlier runs would be counted.
anew() {
    local count="$1" version="$2" operation="$3"
    shift 3
    rm -rf "$folder/store"
    cp -r "$folder/$version.store" "$folder/store"
    "$count" "$folder/$version" "$operation" "$folder/store" "$@"
}
# The cost of one operation is the difference between N and 2 N operations, without the start of the
# program.
once() {
    local count="$1" version="$2" operation="$3" times="$4"
    shift 4
    local some twice
    some="$(anew "$count" "$version" "$operation" "$times" "$@")"
    twice="$(anew "$count" "$version" "$operation" "$((2 * times))" "$@")"
    awk -v some="$some" -v twice="$twice" -v times="$times" 'BEGIN { printf "%.1f\n", (twice - some) / times }'
}

for version in before after; do
    "$folder/$version" make "$folder/$version.store" 1
done
echo "| operation | instructions at $commit | now | ratio | system calls | now | flushes | now |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|"
while read -r operation times pages; do
    row=()
    for count in instructions calls flushes; do
        for version in before after; do
            # shellcheck disable=SC2086 # An empty number of pages must pass no argument.
            row+=("$(once "$count" "$version" "$operation" "$times" $pages)")
        done
    done
    awk -v name="$operation $pages" -v row="${row[*]}" 'BEGIN {
        split(row, of, " ")
        printf "| %s | %d | %d | %.3f | %s | %s | %s | %s |\n", name, of[1], of[2], of[2] / of[1], of[3], of[4], of[5], of[6]
    }'
done <<'OPERATIONS'
read 20
read-raw 20
write 20
write-raw 20
allocate 20
commit 20 1
commit 20 100
commit 3 10000
commit-raw 20 1
commit-raw 20 100
commit-raw 3 10000
commit-whole 20 100
OPERATIONS
