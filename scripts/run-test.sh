#!/bin/sh
# Runs a test program for cargo: with the default actions of signals, even if the caller ignores
# some (`nohup`, a background job), and for at most EVERMAP_TEST_SECONDS. A hanging test is ended
# with its child processes, and both are named. Other programs run unchanged.
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
# Child processes inherit the mark, which finds those that are left after the limit.
mark=EVERMAP_TEST_LIMITED=$$
limit=${EVERMAP_TEST_SECONDS:-2400}
since=$(date +%s)
env --default-signal=$signals "$mark" timeout --foreground --kill-after=10 "$limit" "$@" <&0 &
child=$!
trap 'kill -TERM $child 2>/dev/null' HUP INT TERM
wait $child
status=$?
# A signal ends `wait` early.
while kill -0 $child 2>/dev/null; do
    wait $child
    status=$?
done
if [ $(($(date +%s) - since)) -ge "$limit" ]; then
    echo "TIMEOUT: $1 did not end within $limit s (EVERMAP_TEST_SECONDS); it was ended" >&2
    for environment in $(grep -lszx "$mark" /proc/[0-9]*/environ); do
        process=${environment%/environ}
        echo "TIMEOUT: ending its process: $(tr '\0' ' ' <"$process/cmdline")" >&2
        kill -KILL "${process#/proc/}" 2>/dev/null
    done
fi
# The runner ends by the signal that ended the test program.
trap - HUP INT TERM
[ "$status" -le 128 ] || kill "-$((status - 128))" $$ 2>/dev/null
exit $status
