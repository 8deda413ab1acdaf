#!/usr/bin/env python3
"""Draws chart.png, the harbour at low water: depths in steps of blue, land in steps of sand.

Needs Python's standard library only, and always draws the same.
"""

import math
import pathlib
import struct
import zlib

# Drawn finer than it is, so that edges are smooth.
WIDTH, HEIGHT, FINER = 570, 342, 3
# From deep water to the hill, each with the height in metres where it ends; what high water covers is green.
STEPS = [
    (-8.6, (111, 163, 176)), (-6.0, (139, 187, 195)), (-3.0, (173, 211, 213)), (0.0, (213, 231, 228)),
    (2.4, (214, 219, 186)), (9.0, (241, 226, 194)), (18.0, (229, 205, 160)), (99.0, (213, 182, 128)),
]  # fmt: skip
# Hills and holes: left, top and radius in parts of the width, height in metres.
BUMPS = [
    (0.24, 0.20, 0.15, 30), (0.36, 0.12, 0.12, 18), (0.12, 0.34, 0.11, 17), (0.41, 0.27, 0.07, 12),
    (0.80, 0.44, 0.07, 15), (0.86, 0.40, 0.05, 9), (0.66, 0.09, 0.05, 12), (0.55, 0.50, 0.10, 5),
    (0.30, 0.36, 0.07, -8), (0.62, 0.40, 0.06, -4),
]  # fmt: skip


def height(x, y):
    """Metres above low water, at a place in parts of the width."""
    # The breakwater, with the gap that boats come in by.
    along, off = x - 0.43, y - 0.34 - 0.25 * (x - 0.43)
    if 0 <= along <= 0.14 and abs(off) < 0.006:
        return 4.0
    metres = -10.5 + 2.5 * math.sin(5 * x + 1) * math.cos(6 * y)
    metres += 0.8 * math.sin(29 * x + 4 * math.sin(11 * y)) * math.sin(25 * y + 3 * math.sin(13 * x))
    for left, top, radius, rise in BUMPS:
        metres += rise * math.exp(-((x - left) ** 2 + (y - top) ** 2) / (2 * radius * radius) * 1.6)
    return metres


def step(x, y):
    metres = height(x / WIDTH / FINER, y / WIDTH / FINER)
    return next(number for number, (top, _) in enumerate(STEPS) if metres < top)


def draw():
    """Rows of palette indices, as PNG wants them, and the palette."""
    palette, rows = {}, []
    for y in range(0, HEIGHT * FINER, FINER):
        row = bytearray(1)
        for x in range(0, WIDTH * FINER, FINER):
            parts = sorted(step(x + i, y + j) for i in range(FINER) for j in range(FINER))
            # An edge has two sides, mixed in thirds: few colours keep the file small.
            low, high, share = parts[0], parts[-1], round(parts.count(parts[-1]) / len(parts) * 3)
            color = tuple((a * (3 - share) + b * share) // 3 for a, b in zip(STEPS[low][1], STEPS[high][1]))
            row.append(palette.setdefault(color, len(palette)))
        rows.append(bytes(row))
    return rows, palette


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


rows, palette = draw()
png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 3, 0, 0, 0))
png += chunk(b"PLTE", b"".join(bytes(color) for color in palette))
png += chunk(b"IDAT", zlib.compress(b"".join(rows), 9)) + chunk(b"IEND", b"")
pathlib.Path(__file__).with_name("chart.png").write_bytes(png)
