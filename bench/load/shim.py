#!/usr/bin/env python3
"""Measures the cost and the gain of the preloaded shim for programs that do not use the library.

Runs each program plain and with the shim in turns, warm, and prints the median and the range of the
ratio plain / shim of the same turn: above 1 the shim is faster. `--busy N` runs N processes that keep
the processors busy, and N that allocate and free memory.

    cargo build --release -p evermap-load-shim
    bench/load/shim.py target/release/libevermap_load_shim.so --rounds 40 --busy 4
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RULES = '[[file]]\npattern = "*"\n'
READ_BYTES = 512 << 20
READER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
from ctypes import CDLL, c_size_t, c_void_p, c_int
library = CDLL(None, use_errno=True)
library.malloc.restype, library.malloc.argtypes = c_void_p, [c_size_t]
library.read.argtypes = [c_int, c_void_p, c_size_t]
left = int(sys.argv[2])
at = library.malloc(left)
while left:
    came = library.read(file, at, left)
    assert came > 0
    at, left = at + came, left - came
"""


def turn(command, environment):
    """Runs a command once and returns its wall time and processor time in seconds."""
    begun = time.perf_counter()
    null = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, null, 1)]
    pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    passed = time.perf_counter() - begun
    os.close(null)
    if status:
        sys.exit(f"{command[0]} ended with {status}")
    return passed, usage.ru_utime + usage.ru_stime


def keep_busy():
    while True:
        pass


def take_memory():
    while True:
        block = bytearray(64 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1


def commands(folder):
    small = os.path.join(folder, "small")
    os.mkdir(small)
    for number in range(200):
        with open(os.path.join(small, f"{number}.txt"), "w") as file:
            file.write(f"line of {number}\n" * 300)
    big = os.path.join(folder, "big")
    with open(big, "wb") as file:
        for _ in range(READ_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    found = {
        "true": ["true"],
        "grep, 200 small files": ["grep", "-r", "of 7", small],
        "read(), 512 MiB": [sys.executable, "-c", READER, big, str(READ_BYTES)],
    }
    here = os.path.dirname(os.path.abspath(__file__))
    if subprocess.run(["git", "-C", here, "rev-parse"], capture_output=True).returncode == 0:
        found["git log"] = ["git", "-C", here, "log", "--oneline", "-n", "200"]
    return {name: [shutil.which(command[0])] + command[1:] for name, command in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shim", help="libevermap_load_shim.so of a release build")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    options = parser.parse_args()
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    loaded = plain | {"LD_PRELOAD": os.path.abspath(options.shim), "EVERMAP_LOAD_RULES": RULES}
    beside = [
        multiprocessing.Process(target=work, daemon=True)
        for work in (keep_busy, take_memory)
        for _ in range(options.busy)
    ]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        named = commands(folder)
        for process in beside:
            process.start()
        for name, command in named.items():
            turn(command, plain), turn(command, loaded)
            turns = [(turn(command, plain), turn(command, loaded)) for _ in range(options.rounds)]
            ratios = sorted(without[0] / shim[0] for without, shim in turns)
            processor = statistics.median(without[1] / shim[1] for without, shim in turns if shim[1])
            more = statistics.median((shim[0] - without[0]) * 1e3 for without, shim in turns)
            print(
                f"{name:24} plain/shim {statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
                f"processor {processor:5.2f}, {more:+8.2f} ms",
                flush=True,
            )
        for process in beside:
            process.terminate()


if __name__ == "__main__":
    main()
