# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
# shellcheck source=schedulers/common.sh
source "$here/../common.sh"
export SGE_ROOT=/var/lib/gridengine SGE_CELL=default
# Of this cell alone: a user's own settings must not lead these scripts elsewhere.
unset SGE_QMASTER_PORT SGE_EXECD_PORT SGE_CLUSTER_NAME SGE_ND
system=gridengine
packages=(gridengine-master gridengine-exec gridengine-client gridengine-drmaa1.0)
slots=4
master=$host
nodes=("$host")
admin=sgeadmin
spool=/var/spool/gridengine
run_directory=/run/gridengine
act_qmaster=$SGE_ROOT/$SGE_CELL/common/act_qmaster
# Says that this cluster was made by `up`, so that `down` never touches another.
mark=$SGE_ROOT/$SGE_CELL/common/made-by-up
hosts_mark="# made by schedulers/gridengine/up"
declare -A pid_file=([sge_qmaster]=$spool/qmaster/qmaster.pid
    [sge_execd]=$spool/execd/$host/execd.pid)
# Jobs inherit the daemon's environment, and must not see that of whoever ran `up`.
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin" "SGE_ROOT=$SGE_ROOT" "SGE_CELL=$SGE_CELL")

answers() { timeout 5 qconf -sm > /dev/null 2>&1; }

# start_daemon NAME: in the background, kept by run-daemon.
start_daemon() {
    setsid "$here/run-daemon" "$1" >> "$run_directory/$1.out" 2>&1 < /dev/null &
}

stop() { stop_daemon "$1" "${pid_file[$1]}"; }

# An execution daemon that has reported has an architecture, where others have a dash.
execd_is_there() {
    is_there sge_execd "${pid_file[sge_execd]}" &&
        timeout 5 qhost -h "$host" 2> /dev/null | grep -q "^$host  *lx-"
}

# An execution daemon takes a minute to notice a new master, and registers at once when it starts:
# with each master it is started anew. Its jobs go on meanwhile.
start_execd() {
    stop sge_execd
    start_daemon sge_execd
}

discard_state() {
    rm -rf "$spool/spooldb" "$spool/qmaster" "${spool:?}/execd/$host"
}
