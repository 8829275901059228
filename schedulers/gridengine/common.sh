# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
export SGE_ROOT=/var/lib/gridengine SGE_CELL=default
# Of this cell alone: a user's own settings must not lead these scripts elsewhere.
unset SGE_QMASTER_PORT SGE_EXECD_PORT SGE_CLUSTER_NAME SGE_ND
packages=(gridengine-master gridengine-exec gridengine-client gridengine-drmaa1.0)
slots=4
admin=sgeadmin
host=$(hostname)
spool=/var/spool/gridengine
run_directory=/run/gridengine
act_qmaster=$SGE_ROOT/$SGE_CELL/common/act_qmaster
# Says that this cluster was made by `up`, so that `down` never touches another.
mark=$SGE_ROOT/$SGE_CELL/common/made-by-up
hosts_mark="# made by schedulers/gridengine/up"
qmaster_pid=$spool/qmaster/qmaster.pid
execd_pid=$spool/execd/$host/execd.pid
# Jobs inherit the daemon's environment, and must not see that of whoever ran `up`.
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin" "SGE_ROOT=$SGE_ROOT" "SGE_CELL=$SGE_CELL")

say() { echo "gridengine: $*"; }

die() {
    echo "gridengine: $*" >&2
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

is_gone() { [[ -z $(daemon_pid "$@") ]]; }

stop_daemon() { # stop_daemon NAME PID_FILE
    local pid
    pid=$(daemon_pid "$@") || return 0
    kill -TERM "$pid" 2> /dev/null || return 0
    wait_for 10 is_gone "$@" && return 0
    kill -KILL "$pid" 2> /dev/null || return 0
    wait_for 5 is_gone "$@"
}

answers() { timeout 5 qconf -sm > /dev/null 2>&1; }

# An execution daemon that has reported has an architecture, where others have a dash.
execd_is_there() {
    [[ -n $(daemon_pid sge_execd "$execd_pid") ]] && timeout 5 qhost -h "$host" 2> /dev/null | grep -q "^$host  *lx-"
}

discard_state() {
    rm -rf "$spool/spooldb" "$spool/qmaster" "${spool:?}/execd/$host"
}
