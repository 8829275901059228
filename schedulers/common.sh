# What the `up` and `down` of every batch system share; sourced by their own common.sh, which sets
# `system` and `packages`.
# shellcheck shell=bash disable=SC2154

host=$(hostname)

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
            echo "Nothing was done. To do it, as root: $0 --yes"
            exit 0
            ;;
        *) die "usage: $0 [--yes]" ;;
    esac
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

stop_daemon() { # stop_daemon NAME PID_FILE
    local pid
    pid=$(daemon_pid "$@") || return 0
    kill -TERM "$pid" 2> /dev/null || return 0
    wait_for 10 is_gone "$@" && return 0
    kill -KILL "$pid" 2> /dev/null || return 0
    wait_for 5 is_gone "$@"
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
