#!/bin/sh
# Runs a test program for cargo: with the default actions of signals, even if the caller ignores
# some (`nohup`, a background job), and for at most EVERMAP_TEST_SECONDS, so that no test hangs.
# Other programs run unchanged.
case $1 in
*/deps/*) ;;
# Runs each documentation test in a separate process, as rustdoc does without a runner.
*/rustdoctest*) RUSTDOC_DOCTEST_BIN_PATH=$1 exec "$@" ;;
*) exec "$@" ;;
esac
signals=HUP,INT,QUIT,TERM,ALRM,CHLD,USR1,USR2
if ! env --default-signal=INT true 2>/dev/null; then
    echo "SKIPPED: time limits and default signals of tests need env and timeout of coreutils 8.31" >&2
    exec "$@"
fi
exec env --default-signal=$signals EVERMAP_TEST_LIMITED=1 \
    timeout --foreground --kill-after=10 "${EVERMAP_TEST_SECONDS:-2400}" "$@"
