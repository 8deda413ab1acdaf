#!/usr/bin/env bash
# Shows a page with the built viewer: in a window if there is a display, else as a picture.
#
#   scripts/view.sh EVERMAP PAGE
set -euo pipefail
evermap=$1
page=$2
if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then
    exec "$evermap" view "$page"
fi
picture=$(mktemp --suffix .png)
"$evermap" render "$page" --output "$picture" --explain
echo "There is no display; the page was painted into $picture"
printf 'With a display (DISPLAY or WAYLAND_DISPLAY is set), this opens a window: %q view %q\n' "$evermap" "$page"
