#!/bin/sh
# Runs a test program for cargo: with the default actions of signals, whatever the caller ignores (`nohup`, a
# background job), and for EVERMAP_TEST_SECONDS at most, so that no test hangs. Other programs run as they are.
case $1 in
*/deps/*) ;;
# Tests in documentation: each in a process of its own, which rustdoc leaves out when it has a runner.
*/rustdoctest*) RUSTDOC_DOCTEST_BIN_PATH=$1 exec "$@" ;;
*) exec "$@" ;;
esac
signals=HUP,INT,QUIT,TERM,ALRM,CHLD,USR1,USR2
if ! env --default-signal=INT true 2>/dev/null; then
    echo "SKIPPED: limits and default signals of tests take env and timeout of coreutils 8.31" >&2
    exec "$@"
fi
exec env --default-signal=$signals EVERMAP_TEST_LIMITED=1 \
    timeout --foreground --kill-after=10 "${EVERMAP_TEST_SECONDS:-2400}" "$@"
