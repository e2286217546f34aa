# packages.sh: what the project needs from the system, found by probing, named for each package manager. Sourced by
# ./demo and ./check; defines need_packages. POSIX sh, safe under set -eu.
#
# A row: probe, then the package's name for apt, dnf, pacman and brew ("-": comes with the system).
#   cmd:NAME  a program on PATH         pc:NAME  a library that pkg-config knows
#   cc        a compiler that links     venv     python3 that can make virtual environments
#   fuzzer    clang with libFuzzer (never asked for on macOS, whose clang lacks it)
#   browser   Chromium, with windows or without
# A probe that begins with "?" is of something that is used when it is there: installed with the rest, and no error.

PACKAGES_BUILD='
cc               build-essential  gcc                 gcc          -
cmd:cmake        cmake            cmake               cmake        cmake
cmd:ninja        ninja-build      ninja-build         ninja        ninja
cmd:pkg-config   pkg-config       pkgconf-pkg-config  pkgconf      pkgconf
pc:jansson       libjansson-dev   jansson-devel       jansson      jansson
pc:libpcre2-8    libpcre2-dev     pcre2-devel         pcre2        pcre2
pc:libutf8proc   libutf8proc-dev  utf8proc-devel      libutf8proc  utf8proc
pc:libcrypto     libssl-dev       openssl-devel       openssl      openssl@3
pc:liburing      liburing-dev     liburing-devel      liburing     -
?pc:libevent_core libevent-dev    libevent-devel      libevent     libevent
?pc:zlib         zlib1g-dev       zlib-devel          zlib         zlib
?pc:libcurl      libcurl4-openssl-dev  libcurl-devel   curl         curl
'
# Debian has Chromium without windows on its own, in which the tests of the page take half the processor time.
chromium_apt=chromium
if grep -q '^ID=debian' /etc/os-release 2>/dev/null; then chromium_apt=chromium-headless-shell; fi
PACKAGES_CHECK="
pc:cmocka        libcmocka-dev    libcmocka-devel     cmocka       cmocka
venv             python3-venv     python3             python       python3
?cmd:npm         npm              nodejs-npm          npm          node
?browser         $chromium_apt    chromium            chromium     -
?fuzzer          clang            clang,compiler-rt   clang,compiler-rt  -
?cmd:aarch64-linux-gnu-gcc   gcc-aarch64-linux-gnu   -  -  -
?cmd:qemu-aarch64            qemu-user               -  -  -
?cmd:x86_64-w64-mingw32-gcc  gcc-mingw-w64-x86-64-posix  -  -  -
"

links() # links COMPILER [FLAG...]: can it build a program?
{
    links_dir=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return p == 0 && n != 0; }' \
        >"$links_dir/t.c"
    [ $# -gt 1 ] || echo 'int main(void) { return 0; }' >>"$links_dir/t.c"
    links_rc=0
    "$@" -o "$links_dir/t" "$links_dir/t.c" >/dev/null 2>&1 || links_rc=1
    rm -rf "$links_dir"
    return $links_rc
}

have() # have PROBE
{
    case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 ;;
    pc:*) pkg-config --exists "${1#pc:}" >/dev/null 2>&1 ;;
    cc) links "${CC:-cc}" ;;
    venv) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    browser) have cmd:chromium-headless-shell || have cmd:chromium ;;
    fuzzer) [ "$(uname)" = Darwin ] || links clang -fsanitize=fuzzer,address ;;
    esac
}

package_manager()
{
    for pm in apt-get dnf pacman brew; do
        if command -v $pm >/dev/null 2>&1; then
            echo $pm
            return
        fi
    done
}

# missing_packages MANAGER [required]: reads rows, prints the names of what is not there, on one line
missing_packages()
{
    while read -r probe apt dnf pacman brew; do
        if [ -z "$probe" ] || have "${probe#\?}"; then
            continue
        fi
        case ${2:-}$probe in
        required\?*) continue ;;
        esac
        case $1 in
        apt-get) name=$apt ;;
        dnf) name=$dnf ;;
        pacman) name=$pacman ;;
        brew) name=$brew ;;
        *) name=${probe#\?} ;;
        esac
        [ "$name" = - ] || echo "$name" | tr ',' '\n'
    done | sort -u | tr '\n' ' '
}

install_command() # install_command MANAGER PACKAGE...
{
    pm=$1
    shift
    as_root=
    [ "$(id -u)" = 0 ] || as_root='sudo '
    case $pm in
    apt-get) echo "${as_root}apt-get update && ${as_root}apt-get install -y $*" ;;
    dnf) echo "${as_root}dnf install -y $*" ;;
    pacman) echo "${as_root}pacman -S --needed --noconfirm $*" ;;
    brew) echo "brew install $*" ;;
    esac
}

# need_packages YES ROWS: installs what is missing, after saying what and asking (YES=1: without asking). Returns 1 when
# something that is required is missing in the end.
need_packages()
{
    pm=$(package_manager)
    if [ "$pm" = brew ]; then
        # Kept out of the default search path by brew.
        PKG_CONFIG_PATH="$(brew --prefix)/opt/openssl@3/lib/pkgconfig:${PKG_CONFIG_PATH:-}"
        export PKG_CONFIG_PATH
    fi
    missing=$(echo "$2" | missing_packages "$pm")
    [ -n "$missing" ] || return 0
    required=$(echo "$2" | missing_packages "$pm" required)
    echo "Missing: $missing" >&2
    if [ -z "$pm" ]; then
        echo "No known package manager (apt-get, dnf, pacman, brew); please install these and run this again." >&2
        [ -z "$required" ]
        return
    fi
    # shellcheck disable=SC2086
    command=$(install_command "$pm" $missing)
    if [ "$1" != 1 ]; then
        if [ ! -t 0 ]; then
            echo "To install: $command    (or run this again with --yes)" >&2
            [ -z "$required" ]
            return
        fi
        printf 'Run "%s"? [y/N] ' "$command" >&2
        read -r answer || answer=
        case $answer in
        y | Y | yes) ;;
        *)
            [ -z "$required" ]
            return
            ;;
        esac
    fi
    echo "+ $command" >&2
    DEBIAN_FRONTEND=noninteractive sh -c "$command" >&2 || echo "That failed." >&2
    required=$(echo "$2" | missing_packages "$pm" required)
    [ -z "$required" ] || echo "Still missing: $required" >&2
    [ -z "$required" ]
}
