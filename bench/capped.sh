#!/bin/sh
# Runs a command in a control group of its own whose memory, page cache included, is capped; then says on standard error
# how much it took at most. Needs the right to make control groups (root, as a rule).
# usage: bench/capped.sh BYTES COMMAND...     BYTES may end in K, M or G (powers of 1024); "max": no cap, only the peak
set -eu
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
cap=$1
shift
name=swiftlet-bench-$$
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    dir=/sys/fs/cgroup/$name limit=memory.max swap=memory.swap.max peak=memory.peak none=max
    echo +memory > /sys/fs/cgroup/cgroup.subtree_control
else
    dir=/sys/fs/cgroup/memory/$name limit=memory.limit_in_bytes swap=memory.swappiness peak=memory.max_usage_in_bytes none=-1
fi
mkdir "$dir" || { echo "capped.sh: cannot make the control group $dir" >&2; exit 1; }
trap 'rmdir "$dir"' EXIT
[ "$cap" != max ] || cap=$none
echo "$cap" > "$dir/$limit"
echo 0 > "$dir/$swap" 2> /dev/null || true
status=0
sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$dir" "$@" || status=$?
echo "peak memory of the control group: $(cat "$dir/$peak" 2> /dev/null || echo unknown)" >&2
exit $status
