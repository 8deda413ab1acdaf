#!/usr/bin/env bash
# Checks that this machine can build Evermap, and prints what is missing and how to install it.
# On Debian and Ubuntu, as root or with sudo, it installs the packages with apt-get. If nothing is
# missing, it changes nothing and prints one line.
#
#   scripts/setup.sh               for building
#   scripts/setup.sh --with-lints  also rustfmt and clippy, for `make test`; and optional programs
#                                  of the tests, which are skipped without them
#   scripts/setup.sh --with-view   also the viewer's dependencies: fontconfig and a font
#   scripts/setup.sh --with-sandbox  also the sandbox's dependency: Rust's target wasm32-wasip1
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_lints=no
with_view=no
with_sandbox=no
case "${1:-}" in
    "") ;;
    --with-lints) with_lints=yes; with_view=yes; with_sandbox=yes ;;
    --with-view) with_view=yes ;;
    --with-sandbox) with_sandbox=yes ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac

say() { echo "setup: $*"; }
has() { command -v "$1" >/dev/null 2>&1; }
# Returns true if version $1 is at least version $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

manifest=Cargo.toml
[ "$with_view" = no ] || manifest=crates/evermap-view/Cargo.toml
[ "$with_sandbox" = no ] || manifest=crates/evermap-wasm/Cargo.toml
rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$manifest")
rustup_advice="get it from https://rustup.rs; it brings everything the project needs (rust-toolchain.toml)"

if [ "$(uname -s)" != Linux ]; then
    say "Evermap needs Linux; this is $(uname -s)"
    exit 1
fi

# Packages to install with apt-get; how_else is for systems without it.
packages=()
how_else=()

# Links a program: a compiler without the C library's development files cannot.
can_compile_c() { echo 'int main(void) { return 0; }' | cc -x c - -o /dev/null 2>/dev/null; }
if ! can_compile_c; then
    packages+=(gcc libc6-dev)
    how_else+=("a C compiler named \`cc\`, and the C library's headers")
    say "a working C compiler is missing (Debian, Ubuntu: gcc libc6-dev)"
fi

# Prints the version that apt-get would install, or nothing if it has none.
apt_version() {
    has apt-cache || return 0
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9][0-9.]*\).*/\1/p'
}

if ! has cargo || ! has rustc; then
    packaged=$(apt_version rustc)
    if [ -n "$packaged" ] && at_least "$packaged" "$rust_wanted"; then
        packages+=(cargo rustc)
        [ "$with_lints" = no ] || packages+=(rustfmt rust-clippy)
    else
        [ -z "$packaged" ] || say "this system packages Rust $packaged, which is too old"
        say "Rust $rust_wanted or newer is missing: $rustup_advice"
        exit 1
    fi
    how_else+=("Rust $rust_wanted or newer: $rustup_advice")
else
    # With rustup, this command also downloads the toolchain.
    rust_found=$(rustc --version | cut -d ' ' -f 2)
    if ! at_least "${rust_found%%-*}" "$rust_wanted"; then
        say "found Rust $rust_found at $(command -v rustc), and $rust_wanted or newer is needed:"
        say "$rustup_advice"
        exit 1
    fi
    if [ "$with_lints" = yes ]; then
        for tool in rustfmt clippy; do
            subcommand=${tool/rustfmt/fmt}
            cargo "$subcommand" --version >/dev/null 2>&1 && continue
            if has rustup; then
                say "adding $tool: rustup component add $tool"
                rustup component add "$tool"
            else
                packages+=("${tool/clippy/rust-clippy}")
                how_else+=("$tool of the same version as rustc, or Rust with both: $rustup_advice")
            fi
        done
    fi
fi

if [ ${#packages[@]} -gt 0 ]; then
    install=(apt-get install --yes --no-install-recommends "${packages[@]}")
    if ! has apt-get; then
        say "missing, and this system has no apt-get:"
        printf '  %s\n' "${how_else[@]}"
        exit 1
    elif [ "$(id -u)" -eq 0 ]; then
        as_root=()
    elif has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root=(sudo)
    else
        say "missing; as root, run: ${install[*]}"
        exit 1
    fi
    install=("${as_root[@]}" "${install[@]}")
    say "installing with: ${install[*]}"
    "${as_root[@]}" apt-get update --quiet
    "${install[@]}"
    can_compile_c || { say "a C compiler is still missing"; exit 1; }
fi

# Optional packages: without them tests are skipped, and pages have no text.
tests_use=()
if [ "$with_view" = yes ]; then
    ldconfig -p 2>/dev/null | grep -q 'libfontconfig\.so\.1' || tests_use+=(libfontconfig1)
    [ -n "$(find /usr/share/fonts /usr/local/share/fonts -name '*.[to]t[fc]' -print -quit 2>/dev/null)" ] ||
        tests_use+=(fonts-dejavu-core)
fi
# Used by the C library's tests to build programs, and by the viewer's to drive a window.
if [ "$with_lints" = yes ]; then
    has Xvfb || tests_use+=(xvfb)
    has xdotool || tests_use+=(xdotool)
    # An sshd for tests of `send`. Its package starts a service, so it is installed only in
    # continuous integration.
    [ "${CI:-}" != true ] || [ -x /usr/sbin/sshd ] || tests_use+=(openssh-server openssh-client)
    has c++ || tests_use+=(g++)
    has cmake || tests_use+=(cmake)
    has pkg-config || tests_use+=(pkg-config)
    # C compilers for guests, if they are packaged: Debian's default, whose linker has limits, and a
    # newer one.
    if ! has wasm-ld && [ -n "$(apt_version libclang-rt-14-dev-wasm32)" ] && [ -n "$(apt_version wasi-libc)" ]; then
        tests_use+=(clang lld wasi-libc libclang-rt-14-dev-wasm32)
    fi
    if ! has clang-19 && [ -n "$(apt_version clang-19)" ] && [ -n "$(apt_version wasi-libc)" ]; then
        tests_use+=(clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32)
    fi
fi
if [ ${#tests_use[@]} -gt 0 ]; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    say "installing optional packages for tests: ${tests_use[*]}"
    if ! { has apt-get && "${as_root[@]}" apt-get update --quiet &&
        "${as_root[@]}" apt-get install --yes --no-install-recommends "${tests_use[@]}"; }; then
        say "not installed: ${tests_use[*]}; tests that use them are skipped, pages may have no text"
    fi
fi

# Target of guests in Rust. Without it, tests that build guests are skipped; the sandbox
# itself, and guests that were built elsewhere, do not need it.
if [ "$with_sandbox" = yes ]; then
    has_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-wasip1/lib" ]; }
    if ! has_target && has rustup; then
        say "adding Rust's target for guests: rustup target add wasm32-wasip1"
        rustup target add wasm32-wasip1 || true
    fi
    if ! has_target; then
        say "Rust's target wasm32-wasip1 is missing (rustup target add wasm32-wasip1; Debian: libstd-rust-web-dev of the same version)"
        [ "$with_lints" = yes ] || exit 1
    fi
fi

say "ready: $(cc --version | head -n 1); $(rustc --version)"
