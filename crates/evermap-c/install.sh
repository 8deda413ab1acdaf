#!/usr/bin/env bash
# Installs the C library from the static library that cargo built, or takes it away again:
#
#   install.sh install STATIC_LIBRARY
#   install.sh uninstall
#
# PREFIX (default /usr/local) is where it goes, LIBDIR (default PREFIX/lib) where libraries go, and
# DESTDIR, for packagers, stands before both without being written into any file.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PREFIX=${PREFIX:-/usr/local}
LIBDIR=${LIBDIR:-$PREFIX/lib}
DESTDIR=${DESTDIR:-}

# Does the dynamic linker look into LIBDIR by itself? A packager's DESTDIR is installed by somebody
# who knows.
is_known() {
    [ -n "$DESTDIR" ] || ldconfig -N -X -v 2>/dev/null | grep -q "^$LIBDIR:"
}

headers() { (cd "$here/include" && find . -type f -printf '%P\n'); }

install_all() {
    stage=$(mktemp -d)
    trap 'rm -rf "$stage"' EXIT
    "$here/link.sh" "$1" "$stage"
    so=$(basename "$stage"/lib/libevermap.so.*.*)
    version=${so#libevermap.so.}
    # Programs carry the library's directory if the dynamic linker does not search there.
    rpath=
    is_known || rpath=' -Wl,-rpath,${libdir}'
    # From LIBDIR/cmake/evermap to PREFIX.
    up=$(realpath --canonicalize-missing --relative-to="$LIBDIR/cmake/evermap" "$PREFIX")

    install -d "$DESTDIR$PREFIX/include" "$DESTDIR$LIBDIR/pkgconfig" "$DESTDIR$LIBDIR/cmake/evermap"
    headers | while read -r header; do
        install -D -m 644 "$stage/include/$header" "$DESTDIR$PREFIX/include/$header"
    done
    install -m 644 "$stage/lib/libevermap.a" "$DESTDIR$LIBDIR/"
    install -m 755 "$stage/lib/$so" "$DESTDIR$LIBDIR/"
    cp --no-dereference "$stage/lib/libevermap.so" "$stage/lib/libevermap.so.${version%%.*}" \
        "$DESTDIR$LIBDIR/"
    fill() {
        sed -e "s|@PREFIX@|$PREFIX|; s|@LIBDIR@|$LIBDIR|; s|@VERSION@|$version|; s|@UP@|$up|" \
            -e "s|@RPATH@|$rpath|" \
            "$here/package/$1.in" >"$stage/$1"
        install -m 644 "$stage/$1" "$DESTDIR$LIBDIR/$2/"
    }
    fill evermap.pc pkgconfig
    fill evermapConfig.cmake cmake/evermap
    fill evermapConfigVersion.cmake cmake/evermap
    echo "installed libevermap $version in $DESTDIR$LIBDIR, headers in $DESTDIR$PREFIX/include"
    # Programs do not load libraries from a packager's DESTDIR.
    if [ -z "$DESTDIR" ] && [ -z "$rpath" ] && [ "$(id -u)" -eq 0 ]; then
        ldconfig
    fi
}

uninstall_all() {
    headers | while read -r header; do
        rm -f "$DESTDIR$PREFIX/include/$header"
    done
    rmdir "$DESTDIR$PREFIX/include/evermap" 2>/dev/null || true
    rm -f "$DESTDIR$LIBDIR"/libevermap.a "$DESTDIR$LIBDIR"/libevermap.so \
        "$DESTDIR$LIBDIR"/libevermap.so.[0-9]* "$DESTDIR$LIBDIR/pkgconfig/evermap.pc" \
        "$DESTDIR$LIBDIR"/cmake/evermap/evermapConfig{,Version}.cmake
    rmdir "$DESTDIR$LIBDIR/cmake/evermap" 2>/dev/null || true
    echo "took libevermap away from $DESTDIR$LIBDIR and $DESTDIR$PREFIX/include"
}

case "${1:-} $#" in
    "install 2") install_all "$2" ;;
    "uninstall 1") uninstall_all ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
