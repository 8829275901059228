# What the `up` and `down` of every batch system share; sourced by their own common.sh, which sets
# `system` and `packages`.
# shellcheck shell=bash disable=SC2154

host=$(hostname)
# How many hosts of their own (see `hosts`) the daemons have; empty where this machine has them all.
host_count=""
hosts=$here/../hosts

say() { echo "$system: $*"; }

die() {
    echo "$system: $*" >&2
    exit 1
}

# Prints the plan and leaves, unless called with --yes by root.
ask_leave() {
    case "${1-}" in
        --yes) [[ $(id -u) == 0 ]] || die "only root can do this" ;;
        "")
            plan
            echo "Nothing was done. To do it, as root: $0${host_count:+ --hosts $host_count} --yes"
            exit 0
            ;;
        *) die "usage: $0 [--yes]" ;;
    esac
}

# A node is on each host but `login`, which has the master.
use_hosts() { # use_hosts COUNT
    [[ ${1-} =~ ^[2-9]$ ]] || die "--hosts takes 2 to 9, login among them, not '${1-}'"
    host_count=$1
    mapfile -t nodes < <(seq -f 'node%.0f' $((host_count - 1)))
}

# Makes the hosts, and has each bring up its daemons, by the script that calls this.
bring_up_hosts() {
    "$hosts" "$system" up "$host_count" /home /opt
    local one
    for one in login "${nodes[@]}"; do
        "$hosts" "$system" in "$one" "$here/up" --on-host "$host_count"
    done
}

wait_for() { # wait_for SECONDS COMMAND...
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || return 1
        sleep 0.1
    done
}

# The process of this name that wrote this file, if it lives (a zombie has no executable).
daemon_pid() { # daemon_pid NAME PID_FILE
    local pid
    [[ -s $2 ]] && read -r pid < "$2" && [[ $(readlink "/proc/$pid/exe") == */"$1" ]] && echo "$pid"
}

is_there() { [[ -n $(daemon_pid "$@") ]]; }

is_gone() { [[ -z $(daemon_pid "$@") ]]; }

stop_daemon() { # stop_daemon NAME PID_FILE [SIGNAL]
    local pid
    pid=$(daemon_pid "$@") || return 0
    kill -"${3:-TERM}" "$pid" 2> /dev/null || return 0
    wait_for 10 is_gone "$@" && return 0
    kill -KILL "$pid" 2> /dev/null || return 0
    wait_for 5 is_gone "$@"
}

# Writes a file; true when it changed.
put_file() { # put_file FILE, the text on standard input
    local text
    text=$(cat)
    [[ -e $1 && $(< "$1") == "$text" ]] && return 1
    printf '%s\n' "$text" > "$1.new"
    chmod 644 "$1.new"
    mv "$1.new" "$1"
}

# Installs what is missing of `packages`; answers to their questions come on standard input, as
# debconf-set-selections takes them.
install_packages() {
    local missing=() package
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get > /dev/null ||
        die "this wants Debian's packages, and there is no apt-get here"
    say "installing ${missing[*]}"
    debconf-set-selections
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || die "apt-get update fails; is there a network?"
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" \
        < /dev/null > /dev/null || die "apt-get cannot install ${missing[*]}"
}

# Unpacks packages of another release of Debian, and all that they depend on, into a folder of their
# own: nothing of this machine's is replaced, no script of theirs runs, and no mount is made. Their
# programs run on this machine with the C library and the loader of their release.
unpack_packages() { # unpack_packages SUITE FOLDER PACKAGE...
    local suite=$1 folder=$2
    shift 2
    local packages=(patchelf)
    install_packages < /dev/null
    say "unpacking $* of Debian $suite below $folder"
    rm -rf --one-file-system "${folder:?}"
    install -d "$folder"/apt/{parts,state/lists/partial,cache/archives/partial}
    : > "$folder/apt/state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian $suite main" > "$folder/apt/sources.list"
    apt_of "$folder" update || die "apt-get update fails for $suite; is there a network?"
    apt_of "$folder" install -y --download-only "$@" > /dev/null ||
        die "apt-get cannot have $* of $suite"
    local file
    for file in "$folder"/apt/cache/archives/*.deb; do
        dpkg-deb --extract "$file" "$folder"
    done
    rm -rf "$folder/apt"
}

apt_of() { # apt_of FOLDER ARGUMENTS...: apt-get that knows what lies in the folder alone
    local apt=$1/apt
    shift
    apt-get -qq -o Dir::State="$apt/state" -o Dir::State::status="$apt/state/status" \
        -o Dir::Cache="$apt/cache" -o Dir::Etc::sourcelist="$apt/sources.list" \
        -o Dir::Etc::sourceparts="$apt/parts" -o APT::Install-Recommends=false "$@"
}

# Has the programs of an unpacked release use its own libraries.
patch_programs() { # patch_programs FOLDER PROGRAM...
    local usr=$1/usr file loader libraries
    shift
    libraries=$(dirname "$(find "$usr/lib" -name libc.so.6)"):$usr/lib
    for file in "$@"; do
        [[ ! -L $file ]] && loader=$(patchelf --print-interpreter "$file" 2> /dev/null) || continue
        patchelf --set-interpreter "$usr$loader" --force-rpath --set-rpath "$libraries" "$file"
    done
}
