#!/bin/sh
# Decode and prompt rates with experts on the drive, under several bounds of memory, each inside a control group with a cap
# of the same size (page cache included). The container is made once (19.5 GB; 45 GB for qwen3-next-80b) in the cache folder.
# Appends to bench/results/budgets.csv; the control group's peak goes to standard error.
# usage: bench/run_budgets.sh [SIZE...]     sizes as for --memory: 2600M 4G 6G 8G (these four), or max
# environment: SHAPES (qwen3.6-35b), THREADS (all), CONTAINER (in the cache folder), NO_CAP=1 (where no group can be made)
set -eu
ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$ROOT/bench/common.sh"
SHAPES=${SHAPES:-qwen3.6-35b}
THREADS=${THREADS:-0}

# Written outside of any cap.
"$SWIFTLET" bench --synthetic "$SHAPES" ${CONTAINER:+--output "$CONTAINER"} -p 0 -n 0 --no-drive
for size in ${*:-2600M 4G 6G 8G}; do
    for routes in uniform fitted; do
        CAP=$size
        [ -z "${NO_CAP:-}" ] || CAP=
        memory=
        [ "$size" = max ] || memory="--memory $size"
        # shellcheck disable=SC2086
        record budgets memory="$size" -- --synthetic "$SHAPES" -t "$THREADS" $memory -p 512,2048 -n 64 -r 5 \
            --routes $routes --profile --limits ${CONTAINER:+--output "$CONTAINER"}
    done
done
