#!/bin/sh
# Decode and prompt rates on the shapes of Qwen3.6-35B-A3B with everything in memory (20.5 GB), beside the machine's own
# rates, which are measured just before each row. Appends to bench/results/35b_*.csv. About half an hour.
# usage: bench/run_35b.sh [PART...]     parts: speed depth batch busy (all of them)
# environment: SHAPES (qwen3.6-35b; qwen3.6-35b/8 needs a quarter), THREADS (all), CONTAINER (in the cache folder)
set -eu
ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$ROOT/bench/common.sh"
SHAPES=${SHAPES:-qwen3.6-35b}
THREADS=${THREADS:-0}
parts=${*:-speed depth batch busy}

memory() { # FILE COLUMN=VALUE... -- ARGUMENTS
    record "$@" --synthetic "$SHAPES" --in-memory -t "$THREADS" ${CONTAINER:+--output "$CONTAINER"}
}

# With one core taken by something else: a loop that never sleeps.
busy() {
    sh -c 'while :; do :; done' &
    other=$!
    memory 35b_busy others=1 -- -p 0 -n 64 -r 5 || { kill $other; return 1; }
    kill $other
    memory 35b_busy others=0 -- -p 0 -n 64 -r 5
}

for part in $parts; do
    case $part in
    speed) memory 35b_speed -- -p 512,2048 -n 128 -r 5 --profile ;;
    depth) memory 35b_depth -- -p 0 -n 64 -d 0,8192 -r 5 --profile ;;
    batch)
        memory 35b_batch -- -p 0 -n 32 -b 1,2,4,8 --drafts 2,4,8 -r 5 --routes uniform
        memory 35b_batch -- -p 0 -n 32 -b 1,2,4,8 --drafts 2,4,8 -r 5 --routes same
        ;;
    busy) busy ;;
    *) echo "unknown part $part" >&2; exit 2 ;;
    esac
done
