"""Performs one load in Python and measures it from inside, as `child load` of the benchmark does: same options, same JSON.

numpy touches arrays in blocks of at most 512 pages (2 MiB), as Python programs do. The start of the interpreter and the import of
libraries end before the time begins.
"""

import argparse
import json
import resource
import sys
import time

import numpy as np

PAGE_BYTES = 4096
BLOCK = 512
WORDS = PAGE_BYTES // 8
LINES = np.arange(0, WORDS, 8)
MASK = np.uint64(0x5555_5555_5555_5555)
WRAP = (1 << 64) - 1


class Refused(Exception):
    """Raised for work that this subject cannot do."""


def memory():
    """Returns bytes that are private, private in huge pages, and mapped from files."""
    found = {}
    with open("/proc/self/smaps_rollup") as rollup:
        for line in rollup:
            name, _, rest = line.partition(":")
            if rest.strip().endswith("kB"):
                found[name] = int(rest.split()[0]) * 1024
    private = found.get("Anonymous", 0)
    return private, found.get("AnonHugePages", 0), found.get("Rss", 0) - private


class Rows:
    """A whole file as an array with a row for each page after the head."""

    def __init__(self, rows):
        self.rows = rows

    def block(self, numbers):
        """Returns the array and the row numbers of these pages."""
        return self.rows, numbers - 1


class Slices:
    """A tensor that is read in parts: each block of pages is a slice, which stays in memory."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.parts = []

    def block(self, numbers):
        first, last = int(numbers.min()) - 1, int(numbers.max())
        part = self.tensor[first:last]
        self.parts.append(part)
        return part, numbers - 1 - first


def load(options):
    name, path = options.subject, options.file
    if name == "numpy.fromfile":
        return Rows(np.fromfile(path, dtype=np.uint64, offset=PAGE_BYTES).reshape(-1, WORDS))
    if name.startswith("numpy.memmap "):
        mode = name.split()[1]
        if options.written and mode == "r":
            raise Refused("the mapping is read-only")
        mapped = np.memmap(path, dtype=np.uint64, mode=mode, offset=PAGE_BYTES)
        return Rows(mapped.view(np.ndarray).reshape(-1, WORDS))
    if name == "safetensors load_file":
        from safetensors.numpy import load_file

        return Rows(load_file(path)["data"])
    if name == "safetensors safe_open":
        from safetensors import safe_open

        if options.order == "random":
            raise Refused("slices are in order")
        return Slices(safe_open(path, framework="np").get_slice("data"))
    raise Refused(f"unknown subject {name}")


def is_whole(places):
    return int(places[-1]) - int(places[0]) + 1 == len(places) and bool(np.all(np.diff(places) == 1))


def total(array):
    return int(array.sum(dtype=np.uint64))


def read(held, numbers):
    rows, places = held.block(numbers)
    if is_whole(places):
        return total(rows[int(places[0]) : int(places[-1]) + 1])
    return total(rows[places])


def write(held, numbers):
    rows, places = held.block(numbers)
    if not rows.flags.writeable:
        raise Refused("the array is read-only")
    if is_whole(places):
        words = rows[int(places[0]) : int(places[-1]) + 1, ::8]
        before = total(words)
        np.bitwise_xor(words, MASK, out=words)
        return before
    cells = (places[:, None], LINES)
    words = rows[cells]
    rows[cells] = words ^ MASK
    return total(words)


def read_again(held, blocks):
    if isinstance(held, Slices):
        # The parts hold the written words.
        found = 0
        for part, numbers in zip(held.parts, blocks):
            places = numbers - int(numbers.min())
            found += total(part[places][:, ::8])
        return found
    return sum(total(held.rows[(numbers - 1)[:, None], LINES]) for numbers in blocks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subject", required=True)
    parser.add_argument("--touched")
    parser.add_argument("--order")
    parser.add_argument("--pages", required=True)
    parser.add_argument("--written", action="store_true")
    parser.add_argument("file")
    options = parser.parse_args()
    pages = np.fromfile(options.pages, dtype=np.uint32).astype(np.int64)
    blocks = [pages[:1]] + [pages[at : at + BLOCK] for at in range(1, len(pages), BLOCK)]
    if options.subject.startswith("safetensors"):
        import safetensors.numpy  # noqa: F401 imported here, so that its import is not measured
    work = write if options.written else read
    before = 0
    memory_then = memory()
    usage_then = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    held = load(options)
    loaded_s = time.perf_counter() - start
    before += work(held, blocks[0])
    first_page_s = time.perf_counter() - start
    for block in blocks[1:]:
        before += work(held, block)
    finished_s = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    memory_now = memory()
    after = read_again(held, blocks) if options.written else 0
    grown = [max(0, now - then) for now, then in zip(memory_now, memory_then)]
    print(
        json.dumps(
            {
                "loaded_s": loaded_s,
                "first_page_s": first_page_s,
                "finished_s": finished_s,
                "complete_s": None,
                "user_s": usage.ru_utime - usage_then.ru_utime,
                "system_s": usage.ru_stime - usage_then.ru_stime,
                "minor_faults": usage.ru_minflt - usage_then.ru_minflt,
                "major_faults": usage.ru_majflt - usage_then.ru_majflt,
                "private_bytes": grown[0],
                "huge_bytes": grown[1],
                "mapped_bytes": grown[2],
                "checksum": f"{(before * 3 + after) & WRAP:016x}",
                "method": None,
                "why": None,
            }
        )
    )


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"refused: {refused}")
