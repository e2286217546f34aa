#!/bin/sh
# Builds for AArch64 and runs under emulation: every row of the kernel table on a processor of its level; with the
# libraries for arm64 also the whole library: unit tests, reference models, and the same logits, to the bit, as this
# machine's own build gives.
# usage: check_aarch64.sh BUILD    BUILD: this machine's build folder
# Skips on machines that are AArch64 themselves (their ordinary tests do all of this) and without the tools.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
native=$1
n_passed=0 n_failed=0 n_skipped=0

finish()
{
    echo "$n_passed passed, $n_failed failed, $n_skipped skipped"
    [ $n_failed = 0 ]
    exit
}

skip() # skip HOW_MANY WHY
{
    n_skipped=$((n_skipped + $1))
    echo "skipped: $2"
}

attempt() # attempt NAME COMMAND...: one test; its output is shown when it fails
{
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        n_passed=$((n_passed + 1))
        echo "ok      $name"
    else
        n_failed=$((n_failed + 1))
        echo "FAILED  $name"
        tail -n 30 "$work/log"
    fi
}

# All rows of one level, none skipped: the level is also recognised.
kernels() # kernels PROCESSOR SUFFIX
{
    QEMU_CPU=$1 qemu-aarch64 "$checker" --seed=1 --function="$2" | tee "$work/rows" || return 1
    tail -n 1 "$work/rows" | grep -q '^[1-9][0-9]* passed, 0 failed, 0 skipped$'
}

same_logits() # same_logits PROCESSOR [OPTION...]
{
    QEMU_CPU=$1
    shift
    export QEMU_CPU
    echo "$ids" | "$native/tests/model/score_ids" models/demo.qpack --last "$@" >"$work/here" || return 1
    echo "$ids" | timeout 120 qemu-aarch64 "$build/tests/model/score_ids" models/demo.qpack --last "$@" >"$work/there" || return 1
    cmp "$work/here" "$work/there"
}

configure_and_build() # configure_and_build FOLDER "TARGETS" CMAKE_ARGUMENT...
{
    folder=$1 targets=$2
    shift 2
    # shellcheck disable=SC2086
    cmake -B "$folder" "$@" && cmake --build "$folder" -j "${JOBS:-2}" --target $targets
}

case $(uname -m) in
aarch64 | arm64)
    skip 1 "this machine is AArch64"
    finish
    ;;
esac
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 || { skip 1 "no $tool"; finish; }
done
cd "$root" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build=build/aarch64
whole=true
for library in jansson libpcre2-8 libutf8proc libcrypto cmocka; do
    PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig pkg-config --exists $library || whole=false
done
# Quick ones that touch what differs between processors: numbers, bits, files. Not the worker team: emulators order memory loosely.
units=
for unit in crc32c dtype json_scan math probe quant safetensors store; do
    [ ! -f tests/unit/test_$unit.c ] || units="$units test_$unit"
done
if $whole; then
    checker=$build/tests/check_kernels
    attempt build configure_and_build $build "check_kernels score_ids swiftlet_cli $units" --preset aarch64
else
    build=build/aarch64-kernels checker=build/aarch64-kernels/check_kernels
    attempt build configure_and_build $build check_kernels -S tests/cross -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64-linux.cmake"
fi
[ $n_failed = 0 ] || finish
attempt "kernels, base" kernels cortex-a53 _neon
attempt "kernels, dotprod" kernels neoverse-n1 _dotprod
attempt "kernels, i8mm" kernels max _i8mm
if ! $whole; then
    skip 1 "the library as a whole: needs libjansson-dev, libpcre2-dev, libutf8proc-dev, libssl-dev, libcmocka-dev for arm64"
    finish
fi

for unit in $units; do
    attempt "unit $unit" timeout 120 qemu-aarch64 "$build/tests/$unit"
done
# One of each family and of each width.
for name in golden-next-moe golden-q35-dense golden-q35-moe next-b-mlx4 next-c-mlx8g32 q35dense-b-mlxbf16 q35moe-b-mlx2g32 \
    q35moe-b-mlxmixed q35moe-c-mlx5g32s q35moe-c-mlx6 q35moe-d-mlx4g128; do
    case=tests/oracle/cases/$name
    attempt "references $name" timeout 120 qemu-aarch64 $build/swiftlet verify --exact "$case" "$case/reference.safetensors"
done
ids='1 5 7 11 300 42 1000 17 9 12 13 271 84 2000 33'
attempt "logits, base" same_logits cortex-a53
attempt "logits, dotprod" same_logits neoverse-n1
attempt "logits, i8mm" same_logits max
attempt "logits, exact" same_logits max --exact
finish
