# Shared by the benchmark scripts; sourced, not run. ROOT is the checkout.
SWIFTLET=${SWIFTLET:-$ROOT/build/release/swiftlet}
RESULTS=${RESULTS:-$ROOT/bench/results}
[ -x "$SWIFTLET" ] || { echo "build it first: cmake --preset release && cmake --build --preset release" >&2; exit 1; }
mkdir -p "$RESULTS"

# A commit of the checkout, with "+" when files differ from it.
commit() {
    printf '%s%s' "$(git -C "$ROOT" rev-parse --short HEAD)" "$(git -C "$ROOT" diff --quiet HEAD || echo +)"
}

# record FILE COLUMN=VALUE... -- BENCH-ARGUMENTS: appends rows to RESULTS/FILE.csv, with date, commit and the given columns
# in front; a header only where the columns are not those of the file's end.
record() {
    file=$RESULTS/$1.csv
    shift
    head=date,commit
    line=$(date -u +%Y-%m-%dT%H:%MZ),$(commit)
    while [ "$1" != -- ]; do
        head=$head,${1%%=*}
        line=$line,${1#*=}
        shift
    done
    shift
    new=$(mktemp)
    if ! ${CAP:+"$ROOT/bench/capped.sh" "$CAP"} "$SWIFTLET" bench "$@" -q -o csv > "$new"; then
        rm -f "$new"
        return 1
    fi
    sed "1s/^/$head,/; 2,\$s/^/$line,/" "$new" > "$new.all"
    if [ -e "$file" ] && [ "$(grep '^date,' "$file" | tail -1)" = "$(head -1 "$new.all")" ]; then
        tail -n +2 "$new.all" >> "$file"
    else
        cat "$new.all" >> "$file"
    fi
    rm -f "$new" "$new.all"
}
