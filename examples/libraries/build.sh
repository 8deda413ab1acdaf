#!/usr/bin/env bash
# Builds the programs of libraries.txt whose libraries are installed, and names the packages of the
# others: `build.sh DIRECTORY` all of them, `build.sh DIRECTORY PREFIX...` those that begin so.
#
# Evermap is found by pkg-config. Where it isn't installed, say where it is:
#   EVERMAP_CFLAGS="-I.../include" EVERMAP_LIBS=".../libevermap.a -lpthread -ldl -lm"
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?say the directory for the programs}
shift
prefixes=("${@:-}")
options=(-O2 -g -fPIE -Wall -Wextra -Wpedantic)
read -ra evermap_cflags <<<"${EVERMAP_CFLAGS-$(pkg-config --cflags evermap)}"
read -ra evermap_libs <<<"${EVERMAP_LIBS-$(pkg-config --libs evermap)}"
mkdir -p "$out"

c() { "${CC:-cc}" -std=gnu11 "${options[@]}" "$@"; }
cpp() { "${CXX:-c++}" -std=c++17 "${options[@]}" "$@"; }

# Prints how to compile with a library and to link it; fails when it isn't there.
flags_of() {
    local header=${1%%+*}
    if [[ $header == *.h ]]; then
        echo "#include <$header>" | "${CC:-cc}" -fsyntax-only -x c - 2>/dev/null || return 1
        [ "$header" = "$1" ] || echo "${1#*+}"
    else
        pkg-config --cflags --libs "$1" 2>/dev/null
    fi
}

c -c "$here/keep.c" "${evermap_cflags[@]}" -o "$out/keep.o"
c -c "$here/trials/interpose.c" -o "$out/interpose.o"

while read -r source library package _ memory; do
    wanted=no
    for prefix in "${prefixes[@]}"; do
        [[ $source != "$prefix"* ]] || wanted=yes
    done
    [ "$wanted" = yes ] || continue
    # trials/cjson.cpp becomes trials-cjson, pugixml/document.cpp pugixml.
    name=${source%/*}
    [ "$name" != trials ] || { name=${source%.*}; name=${name/\//-}; }
    if ! flags=$(flags_of "$library"); then
        echo "skipped: $source, for want of the package $package"
        continue
    fi
    read -ra flags <<<"$flags"
    program=$out/$name
    compile=c
    if [[ $source == *.cpp ]]; then
        compile=cpp
        if ! command -v "${CXX:-c++}" >/dev/null; then
            echo "skipped: $source, for want of a C++ compiler (package g++)"
            continue
        fi
    fi
    objects=("$out/keep.o")
    [ "$memory" = hooks ] || objects+=("$out/interpose.o")
    "$compile" "$here/$source" "${objects[@]}" "${flags[@]}" -pie "${evermap_libs[@]}" -o "$program"
    echo "built: $program"
done < <(grep -v '^ *\(#\|$\)' "$here/libraries.txt")
