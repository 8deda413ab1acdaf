"""Children of CPython's multiprocessing, by all three start methods, beside writers.

    forks.py          runs the tests
    forks.py write    commits until its standard input ends

EVERMAP_LIBRARY names the shared library, EVERMAP_STORE a new store, and PYTHONPATH this directory.
"""

import ctypes
import multiprocessing
import os
import select
import subprocess
import sys
import time

WORDS = 3000
CHILDREN = 12
EM_READ, EM_WRITE = 1, 2
EM_OK, EM_FORKED = 0, 102
# Seconds that anything here may take.
LIMIT = 60

library = ctypes.CDLL(os.environ["EVERMAP_LIBRARY"])
path = os.environ["EVERMAP_STORE"].encode()
for name in ("em_root", "em_calloc"):
    getattr(library, name).restype = ctypes.c_void_p
library.em_last_error_message.restype = ctypes.c_char_p


def ok(status):
    if status != EM_OK:
        raise OSError(status, library.em_last_error_message().decode())


def open_store():
    store = ctypes.c_void_p()
    ok(library.em_store_open_or_create(path, None, ctypes.byref(store)))
    return store


def open_object(store, name, mode):
    opened = ctypes.c_void_p()
    ok(library.em_object_open(store, name.encode(), mode, None, ctypes.byref(opened)))
    return opened


def words(opened):
    return (ctypes.c_uint64 * WORDS).from_address(library.em_root(opened))


def number(opened):
    """The number that all words are; an error if they differ."""
    values = set(words(opened))
    if len(values) != 1:
        raise ValueError(f"{len(values)} commits at once")
    return values.pop()


def make(store, name):
    ok(library.em_object_create(store, name.encode()))
    opened = open_object(store, name, EM_WRITE)
    block = library.em_calloc(opened, ctypes.c_size_t(WORDS), ctypes.c_size_t(8))
    ok(library.em_set_root(opened, ctypes.c_void_p(block), ctypes.c_size_t(8 * WORDS), None, None))
    ok(library.em_commit(opened, None))
    return opened


def commit(opened, value):
    words(opened)[:] = [value] * WORDS
    ok(library.em_commit(opened, None))
    ok(library.em_checkpoint(opened, None))


def write_until_told():
    opened = open_object(open_store(), "seen", EM_WRITE)
    value = number(opened)
    commit(opened, value + 1)
    print("commits", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        value += 1
        commit(opened, value)
    ok(library.em_object_close(opened))


def inherits(seen, mine, before, ready, committed):
    """A child of `fork`: what it inherited stays as it was; it commits nothing, and closes its own."""
    holds = lambda: (number(seen), number(mine)) == before
    assert holds()
    ready.set()
    assert committed.wait(LIMIT) and holds()
    assert library.em_commit(mine, None) == EM_FORKED
    store = ctypes.c_void_p()
    assert library.em_store_open(path, None, ctypes.byref(store)) == EM_FORKED
    ok(library.em_object_close(mine))
    ok(library.em_object_close(seen))


def opens(ready, committed):
    """A child of `spawn`: a process of its own, which opens the store itself."""
    store = open_store()
    seen, mine = open_object(store, "seen", EM_READ), open_object(store, "mine", EM_READ)
    before = number(seen), number(mine)
    ready.set()
    assert committed.wait(LIMIT) and (number(seen), number(mine)) == before
    ok(library.em_object_close(seen))
    ok(library.em_object_close(mine))


def preloads(ready, committed):
    """A child of a fork server, which has opened an object."""
    import preloaded

    assert preloaded.OPENED_BY == os.getppid(), "the fork server did not open it"
    assert number(preloaded.SEEN) == preloaded.BEFORE
    ready.set()
    assert committed.wait(LIMIT) and number(preloaded.SEEN) == preloaded.BEFORE
    assert library.em_refresh(preloaded.SEEN, None) == EM_FORKED


def squares(context, mine):
    """A pool reads what its parent has open, by a global of this module."""
    global INHERITED
    INHERITED = mine
    with context.Pool(3) as pool:
        expected = number(mine)
        assert pool.map(look, range(60), chunksize=5) == [expected + n for n in range(60)]


def look(n):
    return number(INHERITED) + n


def run(method, mine):
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["preloaded"])
    store = open_store()
    seen = open_object(store, "seen", EM_READ)
    before = number(seen), number(mine)
    committed, children = context.Event(), []
    for _ in range(CHILDREN):
        ready = context.Event()
        if method == "fork":
            arguments = (seen, mine, before, ready, committed)
            child = context.Process(target=inherits, args=arguments)
        else:
            target = opens if method == "spawn" else preloads
            child = context.Process(target=target, args=(ready, committed))
        child.start()
        children.append((child, ready))
    for child, ready in children:
        assert ready.wait(LIMIT), f"{method}: exit code {child.exitcode}"
    # The parent's snapshot goes before its children's; its session goes on.
    ok(library.em_object_close(seen))
    for step in range(1, 6):
        commit(mine, before[1] + step)
        time.sleep(0.02)
    committed.set()
    for child, _ in children:
        child.join(LIMIT)
        assert child.exitcode == 0, f"{method}: exit code {child.exitcode}"
    assert number(mine) == before[1] + 5
    if method == "fork":
        squares(context, mine)
    ok(library.em_store_close(store))
    print(f"{method}: {len(children)} children")


def main():
    store = open_store()
    ok(library.em_object_close(make(store, "seen")))
    mine = make(store, "mine")
    command = [sys.executable, __file__, "write"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"commits\n"
        for method in multiprocessing.get_all_start_methods():
            run(method, mine)
    finally:
        writer.stdin.close()
        assert writer.wait(LIMIT) == 0
    ok(library.em_object_close(mine))
    seen = open_object(store, "seen", EM_READ)
    assert number(seen) > 5
    ok(library.em_object_close(seen))
    ok(library.em_store_close(store))


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write_until_told()
    else:
        main()
