#!/usr/bin/env bash
# Installs the libraries that the tests of examples/libraries put into objects, on Debian and
# Ubuntu, as root or with sudo. Prints libraries that can't be installed, which is not a failure:
# their tests are skipped. If all are installed, changes nothing and prints one line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "setup: $*"; }
has() { command -v "$1" >/dev/null 2>&1; }

if ! has apt-get || ! has dpkg-query; then
    say "no apt-get here; tests of missing libraries will be skipped"
    exit 0
fi

mapfile -t wanted < <(awk '!/^#/ && NF { print $3 }' examples/libraries/libraries.txt | sort -u)

is_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}
# Returns true if apt-get knows the package.
is_known() { [ -n "$(apt-cache show --no-all-versions "$1" 2>/dev/null)" ]; }

missing=()
for package in "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    say "ready: the libraries of examples/libraries"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root=(sudo)
    else
        say "their tests will be skipped; as root, run: apt-get install ${missing[*]}"
        exit 0
    fi
fi

# In a new container apt-get has no package lists yet.
is_known libc6-dev || "${as_root[@]}" apt-get update --quiet || true
known=()
for package in "${missing[@]}"; do
    if is_known "$package"; then
        known+=("$package")
    else
        say "this system has no package $package; its tests will be skipped"
    fi
done
[ ${#known[@]} -gt 0 ] || exit 0
install=("${as_root[@]}" apt-get install --yes --no-install-recommends "${known[@]}")
say "installing with: ${install[*]}"
"${install[@]}" || { "${as_root[@]}" apt-get update --quiet && "${install[@]}"; } \
    || say "installation failed; tests of missing libraries will be skipped"
