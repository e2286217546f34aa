#!/bin/sh
# Checks the chat page in a real browser: types, behaviour, accessibility, safety, speed. Needs npm with Node 20 or newer and
# Chromium (or CHROMIUM=program); without them it says so and counts as skipped.
# usage: check_page.sh BUILD [--only WORDS] [--slow N] [--screenshots FOLDER]
#   BUILD   a build folder with the page, and best with swiftlet_scripted
#   --slow  the pages' processor seems so many times as slow
set -eu
build=$(CDPATH='' cd -- "$1" && pwd)
shift
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

skip()
{
    echo "chat page not checked: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

command -v npm >/dev/null 2>&1 || skip "no npm"
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || skip "Node is older than 20"
chromium=${CHROMIUM:-}
for name in chromium-headless-shell chromium chromium-browser google-chrome "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
    [ -n "$chromium" ] || chromium=$(command -v "$name" || true)
done
[ -n "$chromium" ] || skip "no Chromium"
page=$build/page/web/dist
[ -f "$page/index.html" ] || { echo "the page was not built in $build: configure it with -D SWL_WEB=ON"; exit 1; }

# The tests run from the build folder, with their packages beside them.
work=$build/page-tests
mkdir -p "$work"
if ! cmp -s "$here/package-lock.json" "$work/installed"; then
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$work"
    (cd "$work" && npm ci --ignore-scripts --prefer-offline --loglevel=error >npm.log 2>&1) || { cat "$work/npm.log"; exit 1; }
    cp "$here/package-lock.json" "$work/installed"
fi
cp "$here"/*.mjs "$work"
cp "$here/../../web/tsconfig.json" "$build/page/web/"
"$work/node_modules/.bin/tsc" -p "$build/page/web"

program=$build/tests/swiftlet_scripted
if [ -x "$program" ] && "$program" serve --help >/dev/null 2>&1; then
    grep -q 'id="app"' "$program" || { echo "$program has no page: configure it with -D SWL_WEB=ON"; exit 1; }
    set -- --program "$program" "$@"
fi
cd "$work"
exec node check_page.mjs "$page" "$chromium" "$@"
