#!/usr/bin/env python3
"""Draws a command's output as a picture of a terminal, in SVG on standard output.

    evermap demo | scripts/terminal-picture.py 'evermap demo' > docs/images/demo.svg

The first argument is the command line that the picture shows above the output.
"""

import sys
from html import escape

FONT_PX = 14
CHARACTER_PX = 8.43  # advance of a monospaced font at 14 px
LINE_PX = 20
MARGIN_PX = 20
TITLE_BAR_PX = 34


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: terminal-picture.py COMMAND < OUTPUT > PICTURE.svg")
    lines = ["$ " + sys.argv[1]] + sys.stdin.read().rstrip("\n").split("\n")
    width = 2 * MARGIN_PX + CHARACTER_PX * max(map(len, lines))
    height = TITLE_BAR_PX + MARGIN_PX + LINE_PX * len(lines)
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img" '
        f'aria-label="Output of {escape(sys.argv[1], quote=True)}">'
    )
    print('<rect width="100%" height="100%" rx="8" fill="#1c2128"/>')
    for number, colour in enumerate(("#e06c75", "#e5c07b", "#98c379")):
        print(f'<circle cx="{MARGIN_PX + 20 * number}" cy="17" r="6" fill="{colour}"/>')
    print(
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
        f'font-size="{FONT_PX}" fill="#d8dee9" xml:space="preserve">'
    )
    for number, line in enumerate(lines):
        y = TITLE_BAR_PX + LINE_PX * (number + 1) - 6
        colour = ' fill="#7fd1b9"' if number in (0, len(lines) - 1) else ""
        # `textLength` keeps columns aligned, whichever font the viewer has.
        length = f' textLength="{CHARACTER_PX * len(line):.1f}"' if line else ""
        print(f'<text x="{MARGIN_PX}" y="{y}"{length}{colour}>{escape(line)}</text>')
    print("</g>\n</svg>")


if __name__ == "__main__":
    main()
