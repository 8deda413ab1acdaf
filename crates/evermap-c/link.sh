#!/usr/bin/env bash
# Links the shared library from the static one, and lays out the files for building programs:
#
#   link.sh STATIC_LIBRARY DIRECTORY   creates DIRECTORY/{lib,include} like `make install`
#
# The version script gives every exported symbol its version and hides all others. rustc cannot
# do this: for a `cdylib` it writes its own version script.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
static=$1
to=$2
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
abi=0

mkdir -p "$to/lib" "$to/include"
cp "$static" "$to/lib/libevermap.a"
"${CC:-cc}" -shared -o "$to/lib/libevermap.so.$version" \
    -Wl,-soname,"libevermap.so.$abi" -Wl,--version-script="$here/evermap.map" \
    -Wl,--whole-archive "$to/lib/libevermap.a" -Wl,--no-whole-archive -Wl,--gc-sections \
    -Wl,-z,relro,-z,now,-z,defs -Wl,--as-needed -pthread -lgcc_s -lm -ldl
ln -sf "libevermap.so.$version" "$to/lib/libevermap.so.$abi"
ln -sf "libevermap.so.$abi" "$to/lib/libevermap.so"
cp -r "$here"/include/* "$to/include/"
