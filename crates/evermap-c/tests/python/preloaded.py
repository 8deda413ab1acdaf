"""Opens an object for reading where it is imported: in the process that a fork server forks."""

import os

import forks

OPENED_BY = os.getpid()
STORE = forks.open_store()
SEEN = forks.open_object(STORE, "seen", forks.EM_READ)
BEFORE = forks.number(SEEN)
