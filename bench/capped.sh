#!/bin/sh
# Runs a command in a control group of its own whose memory, page cache included, is capped; then says on standard error
# how much it took at most. Needs the right to make control groups (root, as a rule).
# usage: bench/capped.sh [-r RATE:PATH] BYTES COMMAND...
#   BYTES may end in K, M or G (powers of 1024); "max": no cap, only the peak
#   -r    reads from the drive that PATH lies on get RATE (a number of bytes) a second at most, as a slower drive's would
#         (on average: after a pause the system lets a few through at once)
set -eu
usage() { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
rate=
if [ "${1-}" = -r ]; then
    [ $# -ge 2 ] || usage
    rate=${2%%:*}
    case $2 in *:?*) ;; *) usage ;; esac
    case $rate in '' | *[!0-9]*) usage ;; esac # a group would take the digits alone
    drive=$(stat -c %Hd:%Ld "${2#*:}")
    [ ! -e "/sys/dev/block/$drive/partition" ] || drive=$(cat "/sys/dev/block/$drive/../dev") # partitions have no limits
    shift 2
fi
[ $# -ge 2 ] || usage
cap=$1
shift
name=swiftlet-bench-$$
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    dir=/sys/fs/cgroup/$name limit=memory.max swap=memory.swap.max peak=memory.peak none=max
    io=$dir io_limit=io.max io_line="${drive-} rbps=$rate"
    echo "+memory${rate:+ +io}" > /sys/fs/cgroup/cgroup.subtree_control
else
    dir=/sys/fs/cgroup/memory/$name limit=memory.limit_in_bytes swap=memory.swappiness peak=memory.max_usage_in_bytes none=-1
    io=/sys/fs/cgroup/blkio/$name io_limit=blkio.throttle.read_bps_device io_line="${drive-} $rate"
fi
[ -n "$rate" ] || io=$dir
trap 'rmdir "$dir" "$io" 2> /dev/null || true' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
for group in $(printf '%s\n' "$dir" "$io" | uniq); do
    mkdir "$group" || { echo "capped.sh: cannot make the control group $group" >&2; exit 1; }
done
[ "$cap" != max ] || cap=$none
echo "$cap" > "$dir/$limit"
echo 0 > "$dir/$swap" 2> /dev/null || true
[ -z "$rate" ] || echo "$io_line" > "$io/$io_limit"
status=0
sh -c 'echo $$ > "$0/cgroup.procs"; echo $$ > "$1/cgroup.procs"; shift; exec "$@"' "$dir" "$io" "$@" || status=$?
echo "peak memory of the control group: $(cat "$dir/$peak" 2> /dev/null || echo unknown)" >&2
exit $status
