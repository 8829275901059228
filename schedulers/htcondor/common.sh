# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
# shellcheck source=schedulers/common.sh
source "$here/../common.sh"
# A user's own settings must not lead these scripts to another pool.
unset CONDOR_CONFIG "${!_CONDOR_@}" "${!_condor_@}"
system=htcondor
# Debian 12 has no HTCondor; that of 13 runs in a folder of its own.
suite=trixie
software=/var/lib/gridengine-test/htcondor
commands=$software/bin
PATH=$commands:$PATH
cores_of_slot=4
port=9618
configuration=/etc/condor/condor_config
# Says that this pool was made by `up`, so that neither `up` nor `down` ever touches another.
mark="# made by schedulers/htcondor/up"
user=condor
state=/var/lib/condor/gridengine
logs=/var/log/condor
run_directory=/run/condor
master_pid=$run_directory/master.pid
# Of a host: `login` takes jobs, and a `node` runs them; empty where this machine does both.
role=""
# By which the daemons of several hosts know each other.
password=$software/password
# Jobs must not see the environment of whoever ran `up`.
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin")

is_ours() { [[ -e $configuration ]] && grep -q "^$mark" "$configuration"; }

refuse_foreign_pool() {
    [[ ! -e $configuration ]] || is_ours ||
        die "this machine has a $configuration that was not made by $here/up; leaving it alone"
}

# True when its queue can be read and both slots of the machine are known. Of hosts, `login` has the
# queue, and others have slots.
answers() {
    is_there condor_master "$master_pid" &&
        { [[ $role == node ]] || timeout 5 condor_q -allusers -totals > /dev/null 2>&1; } &&
        { [[ $role == login ]] || [[ $(slots_here) == 2 ]]; }
}

slots_here() {
    local where=PartitionableSlot
    [[ -z $role ]] || where+=" && Machine == \"$host\""
    timeout 5 condor_status -constraint "$where" -autoformat Name 2> /dev/null | wc -l
}

# The pool's daemons, those too that outlive a master that was killed.
daemons() { # daemons PATTERN: those whose names match
    local file program
    for file in /proc/[0-9]*/exe; do
        program=$(readlink "$file") || continue # it has ended
        # shellcheck disable=SC2053 # the last is a pattern
        [[ $program != "$software"/usr/@(sbin|libexec)/* || ${program##*/} != $1 ]] ||
            basename "${file%/exe}"
    done
}

no_daemons() { [[ -z $(daemons "$1") ]]; }

signal_daemons() { # signal_daemons SIGNAL PATTERN
    daemons "$2" | xargs --no-run-if-empty kill -"$1" 2> /dev/null || true # they may have ended
}

# SIGQUIT ends the pool and its jobs at once; SIGTERM would wait for the jobs. condor_procd, which
# kills the jobs' processes, is the last to end.
stop_pool() {
    local others='condor_!(procd)'
    stop_daemon condor_master "$master_pid" QUIT
    signal_daemons QUIT "$others"
    wait_for 10 no_daemons "$others" || true
    signal_daemons KILL '*'
    wait_for 5 no_daemons '*' || die "these processes do not end: $(daemons '*' | xargs)"
}

discard_state() { rm -rf --one-file-system "${state:?}"; }
