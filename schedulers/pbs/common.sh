# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
# shellcheck source=schedulers/common.sh
source "$here/../common.sh"
# A user's own settings must not lead these scripts elsewhere.
unset "${!PBS_@}"
system=pbs
# No package of Debian's has it: it is built from the project's own repository, or a copy of it.
source=${OPENPBS_SOURCE:-https://github.com/openpbs/openpbs}
commit=cd7ab5edaf03dcac2f1cb9e2f42d75eb117d468a # April 2026; calls itself 23.06.06
software=/var/lib/gridengine-test/pbs
commands=$software/bin
PATH=$commands:$PATH
packages=(autoconf automake g++ gcc git iproute2 libcjson-dev libedit-dev libexpat1-dev libhwloc-dev
    libical-dev libncurses-dev libpam0g-dev libpq-dev libssl-dev libtool libx11-dev libxt-dev make
    pkg-config postgresql postgresql-contrib python3-dev swig tcl-dev tk-dev zlib1g-dev)
server=gridengine-pbs
nodes=("$server")
# The name of this machine or host for PBS.
leaf=$server
cores_of_node=8
# Of pbs_comm, through which the daemons speak. By default it is 17001, which our Slurm's node has.
comm_port=17201
configuration=/etc/pbs.conf
# Says that this PBS was made by `up`, so that neither `up` nor `down` ever touches another.
mark="# made by schedulers/pbs/up"
state=/var/spool/gridengine-pbs
database_user=postgres
# Jobs must not see the environment of whoever ran `up`.
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root)

is_ours() { [[ -e $configuration ]] && grep -q "^$mark" "$configuration"; }

refuse_foreign_pbs() {
    [[ ! -e $configuration ]] || is_ours ||
        die "this machine has a $configuration that was not made by $here/up; leaving it alone"
}

daemons() { "${clean[@]}" "$software/libexec/pbs_init.d" "$1" > "$state/$1.out" 2>&1 < /dev/null; }

# Those of this machine, not those of hosts of namespaces, which it sees too.
of_daemons=(--ns $$ --nslist pid --full "^$software/sbin/pbs_")

# Killed, not asked: a server that ends in order waits for its jobs.
stop_all() {
    [[ -d $state ]] || return 0
    daemons stop || true # what does not end is killed
    pkill -KILL "${of_daemons[@]}" || true
    wait_for 20 no_daemons || die "these do not end: $(pgrep "${of_daemons[@]}" | xargs)"
}

no_daemons() { ! pgrep "${of_daemons[@]}" > /dev/null; }

# True when its server answers and the nodes take jobs.
answers() {
    local one
    for one in "${nodes[@]}"; do
        [[ $(timeout 5 pbsnodes "$one" 2> /dev/null) == *"state = free"* ]] || return 1
    done
}

discard_state() { rm -rf --one-file-system "${state:?}"; }
