#!/bin/sh
# The shared library exports exactly the functions that the public header marks SWL_API, and everything global in the
# static library carries the prefix swl_.
# usage: check_symbols.sh BUILD_FOLDER
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A declaration may run over lines; its name stands before the first parenthesis.
tr '\n' ' ' <"$root/include/swiftlet/swiftlet.h" | sed 's/SWL_API/\n&/g' |
    sed -n 's/^SWL_API [^(;]*[ *]\(swl_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$work/declared"

if [ "$(uname)" = Darwin ]; then
    nm -gU "$1/libswiftlet.dylib" | awk '{ print $3 }' | sed 's/^_//' | sort -u >"$work/exported"
else
    nm -D --defined-only "$1/libswiftlet.so" | awk '{ print $3 }' | sort -u >"$work/exported"
fi
nm -g "$1/libswiftlet.a" 2>/dev/null | awk 'NF == 3 && $2 != "U" { print $3 }' | sed 's/^_swl/swl/' | sort -u >"$work/global"

rc=0
[ -s "$work/declared" ] || { echo "found no declaration in the header"; rc=1; }
for name in $(comm -23 "$work/declared" "$work/exported"); do
    echo "declared and not exported: $name"
    rc=1
done
for name in $(comm -13 "$work/declared" "$work/exported"); do
    echo "exported and not declared: $name"
    rc=1
done
# Names that compilers and sanitizers add begin with an underscore or hold a dot.
for name in $(grep -v -e '^swl_' -e '^_' -e '\.' "$work/global"); do
    echo "global without the prefix swl_: $name"
    rc=1
done
echo "$(wc -l <"$work/declared") functions declared, $(wc -l <"$work/exported") exported"
exit $rc
