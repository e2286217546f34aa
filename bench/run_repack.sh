#!/bin/sh
# Measures conversions of Qwen3-Next-80B's shapes against a plain copy of the same bytes, in turn; medians and ranges go to
# bench/results/repack.csv.
# usage: run_repack.sh FOLDER [LAYERS_MLX [LAYERS_BF16 [RUNS]]]      FOLDER: for sources and results, 15 GB with 4 and 1 layers
# environment: PREFIX="chrt -f 20" keeps other processes off; SWIFTLET, PYTHON (with numpy)
set -eu
ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$ROOT/bench/common.sh"
folder=$1 mlx=${2:-4} bf16=${3:-1} runs=${4:-5}
PYTHON=${PYTHON:-python3}
file=$RESULTS/repack.csv
[ -e "$file" ] || echo "date,commit,source,layers,bytes,runs,copy_s,copy_s_range,repack_s,repack_s_range,of_copy,mb_per_s,mb_per_s_core,cpu_s,peak_mb" > "$file"

now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f\n", b - a }'; }
middle() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
range() { sort -n "$1" | awk 'NR == 1 { a = $1 } END { print a " - " $1 }'; }

for form in mlx bf16; do
    layers=$mlx
    [ $form = mlx ] || layers=$bf16
    source=$folder/source-$form out=$folder/out.qpack
    rm -rf "$source"
    "$PYTHON" "$ROOT/bench/make_checkpoint.py" "$source" $form "$layers"
    bytes=$(cat "$source"/*.safetensors | wc -c) # and so they are in memory, as far as they fit
    : > "$folder/copies"
    : > "$folder/conversions"
    for _ in $(seq "$runs"); do
        rm -rf "$out"
        sync
        begin=$(now)
        ${PREFIX:-} sh -c 'cp -r "$1" "$2" && sync "$2"/*' - "$source" "$out"
        took "$begin" "$(now)" >> "$folder/copies"
        rm -rf "$out"
        sync
        begin=$(now)
        ${PREFIX:-} /usr/bin/time -o "$folder/usage" -f '%U %S %M' "$SWIFTLET" repack "$source" --output "$out" -q
        took "$begin" "$(now)" >> "$folder/conversions"
    done
    rm -rf "$out" "$source"
    copy=$(middle "$folder/copies") repack=$(middle "$folder/conversions")
    awk -v head="$(date -u +%Y-%m-%dT%H:%MZ),$(commit),$form,$layers,$bytes,$runs,$copy,$(range "$folder/copies"),$repack,$(range "$folder/conversions")" \
        -v n="$bytes" -v c="$copy" -v r="$repack" -v cores="$(nproc)" '{ printf "%s,%.2f,%.0f,%.0f,%.1f,%.0f\n", head, c / r, n / r / 1e6,
        n / r / 1e6 / cores, $1 + $2, $3 / 1024 }' "$folder/usage" >> "$file"
    rm -f "$folder/copies" "$folder/conversions" "$folder/usage"
done
