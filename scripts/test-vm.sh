#!/usr/bin/env bash
# `make test-vm`: power cuts and kills of a whole machine, and lanes on other kinds of machines,
# emulated by QEMU.
#
# Gets the parts of the machine (QEMU, a Debian kernel, busybox, file system tools: packages
# only), builds the tests, packs kernel modules and test programs into an initial file system, and
# runs crates/evermap/tests/vm, which boots it and runs the other tests inside, as does
# crates/evermap-lane/tests/vm.
# Prints a notice and skips the tests if the packages are not available.
#
# EVERMAP_VM_KERNEL   kernel package, e.g. linux-image-6.1.0-56-amd64; default: the newest available
#   EVERMAP_VM_CACHE    folder that caches the kernel between runs
#   EVERMAP_VM_ONLY     runs only tests whose names contain this text
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache="${EVERMAP_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/evermap/vm}"
PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"

skip() {
    echo "SKIPPED test-vm: $1"
    exit 0
}

[ "$(uname -m)" = x86_64 ] || skip "the emulated machine needs an x86-64 host"
command -v apt-get dpkg-deb >/dev/null || skip "the machine's parts are Debian packages, and apt-get is missing"

# Tools: installs missing ones if that is allowed.
declare -A package_of=(
    [qemu-system-x86_64]=qemu-system-x86 [busybox]=busybox-static [mke2fs]=e2fsprogs
    [mkfs.xfs]=xfsprogs [mkfs.btrfs]=btrfs-progs [xz]=xz-utils
)
missing=()
for tool in "${!package_of[@]}"; do
    command -v "$tool" >/dev/null || missing+=("${package_of[$tool]}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    [ "$(id -u)" = 0 ] || skip "packages are missing: ${missing[*]}"
    echo "installing ${missing[*]}"
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
        || skip "packages can't be installed: ${missing[*]}"
fi
busybox="$(command -v busybox)"
ldd "$busybox" >/dev/null 2>&1 && skip "busybox needs libraries: install busybox-static"

# Kernel: unpacks its package without installing it.
kernel="${EVERMAP_VM_KERNEL:-$(apt-cache --names-only search '^linux-image-[0-9][0-9.+a-z-]*-amd64$' \
    | awk '{print $1}' | grep -v -E -e '-(cloud|rt)-' | sort -V | tail -n 1)}"
[ -n "$kernel" ] || skip "apt knows no kernel package: run apt-get update"
if [ ! -d "$cache/$kernel/boot" ]; then
    unpacked="$(mktemp -d)"
    trap 'rm -rf "$unpacked"' EXIT
    (cd "$unpacked" && apt-get download -qq "$kernel") || skip "$kernel can't be downloaded"
    mkdir -p "$cache"
    dpkg-deb -x "$unpacked"/*.deb "$unpacked/root"
    rm -rf "${cache:?}/$kernel"
    mv "$unpacked/root" "$cache/$kernel"
fi
modules="$(echo "$cache/$kernel"/lib/modules/*)"
version="$(basename "$modules")"

# Tests, and the paths of their programs.
program_of() {
    cargo test --quiet --locked --package "$@" --no-run --message-format=json \
        | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
tests="$(program_of evermap --test vm)"
units="$(program_of evermap --lib)"
protection="$(program_of evermap --test protection)"
compartments="$(program_of evermap-compartment --test compartments)"
wall="$(program_of evermap-compartment --test wall)"
lane="$(program_of evermap-lane --test vm)"
cargo build --quiet --locked --package evermap-cli
evermap="$(scripts/target-dir.sh)/debug/evermap"
programs=("$tests" "$units" "$protection" "$compartments" "$wall" "$lane" "$evermap")
for program in "${programs[@]}"; do [ -x "$program" ]; done

work="$(mktemp -d "${TMPDIR:-/tmp}/evermap-vm.XXXXXX")"
trap 'rm -rf "$work" "${unpacked:-}"' EXIT
root="$work/root"
mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,src,modules,etc}
cp "$busybox" "$root/bin/busybox"
strip -o "$root/bin/vm" "$tests"
strip -o "$root/bin/units" "$units"
strip -o "$root/bin/protection" "$protection"
strip -o "$root/bin/compartments" "$compartments"
strip -o "$root/bin/wall" "$wall"
strip -o "$root/bin/lane" "$lane"
strip -o "$root/bin/evermap" "$evermap"
for library in $(ldd "${programs[@]}" | grep -o '/[^ ]*' | grep -v ':$' | sort -u); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done

# Modules with their dependencies, in load order.
declare -A packed=()
pack() {
    local file name needed
    name="${1//-/_}"
    [ -z "${packed[$name]:-}" ] || return 0
    packed[$name]=1
    file="$(find "$modules" -name "${name//_/[-_]}.ko*" | head -n 1)"
    [ -n "$file" ] || return 0 # a part of the kernel itself
    case "$file" in
        *.xz) xz -dc "$file" >"$root/modules/$name.ko" ;;
        *) cp "$file" "$root/modules/$name.ko" ;;
    esac
    for needed in $(grep -a -o -z '^depends=.*' "$root/modules/$name.ko" | tr '\0,' '\n ' | sed 's/^depends=//'); do
        pack "$needed"
    done
    echo "$name" >>"$root/modules/order"
}
# Mounting file systems requests crc32c_generic and the hashes by name.
for module in virtio_pci virtio_blk crc32c_generic xxhash_generic blake2b_generic loop ext4 xfs btrfs \
    libnvdimm nd_btt nd_pmem nd_e820; do
    pack "$module"
done

cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=90% tmpfs /tmp
while read -r module; do insmod "/modules/$module.ko"; done </modules/order
export PATH=/bin RUST_BACKTRACE=1
/bin/vm --exact guest::guest --ignored --nocapture --test-threads=1
echo "guest ended: $?"
reboot -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initrd"

export EVERMAP_VM_BOOT="$cache/$kernel/boot/vmlinuz-$version" EVERMAP_VM_INITRD="$work/initrd"
echo "kernel $version"
"$tests" --ignored --nocapture --test-threads=1 "machine::${EVERMAP_VM_ONLY:-}"
echo "make test-vm: passed"
