#!/bin/sh
# Installs a build in an empty folder and uses it as a stranger would: by name, by pkg-config, by CMake.
# usage: check_install.sh BUILD_FOLDER
set -eu
build=$(CDPATH='' cd -- "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
for name in swiftlet swiftlet-repack swiftlet-server; do
    [ -x "$prefix/bin/$name" ] || { echo "bin/$name is missing"; exit 1; }
done
version=$("$prefix/bin/swiftlet" version)
"$prefix/bin/swiftlet-repack" --help | grep -q 'usage: swiftlet repack'

for page in man/man1/swiftlet.1 man/man1/swiftlet-chat.1 man/man5/swiftlet-config.5 bash-completion/completions/swiftlet; do
    [ -s "$prefix/share/$page" ] || { echo "share/$page is missing"; exit 1; }
done

readme=$(find "$prefix/share/doc" -name README.md | head -n 1)
for name in $(grep -Eo '(docs|examples|bench)/[A-Za-z0-9_./-]*[a-z/]' "$readme"); do
    [ -e "$(dirname "$readme")/$name" ] || { echo "README.md names $name, which is not installed"; exit 1; }
done

cat >"$work/client.c" <<'C'
#include <stdio.h>
#include <swiftlet/swiftlet.h>

int main(void)
{
    swl_error err;
    swl_tokenizer *t;

    printf("swiftlet %s\n", swl_version());
    return swl_tokenizer_open(&t, "/nowhere", &err) == SWL_E_NOT_FOUND ? 0 : 1;
}
C
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.21)
project(client C)
find_package(swiftlet REQUIRED)
foreach(library swiftlet swiftlet_static)
    add_executable(with_${library} client.c)
    target_link_libraries(with_${library} swiftlet::${library})
endforeach()
CMAKE

says_version() # says_version PROGRAM
{
    said=$("$1")
    [ "$said" = "$version" ] || { echo "$1 says $said, the program $version"; exit 1; }
}

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name swiftlet.pc)"):${PKG_CONFIG_PATH:-}
export PKG_CONFIG_PATH
library=$(pkg-config --variable=libdir swiftlet)
# shellcheck disable=SC2046
${CC:-cc} -std=c99 -Wall -Wextra -Wpedantic -Werror -o "$work/shared" "$work/client.c" $(pkg-config --cflags --libs swiftlet) \
    -Wl,-rpath,"$library"
says_version "$work/shared"
# The archive by its path, since -lswiftlet would find the shared library.
# shellcheck disable=SC2046
${CC:-cc} -o "$work/static" "$work/client.c" $(pkg-config --cflags swiftlet) "$library/libswiftlet.a" \
    $(pkg-config --static --libs swiftlet | sed 's/-lswiftlet//')
says_version "$work/static"

cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 && cmake --build "$work/build" >>"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
says_version "$work/build/with_swiftlet"
says_version "$work/build/with_swiftlet_static"
echo "installed $version"
