# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
# shellcheck source=schedulers/common.sh
source "$here/../common.sh"
system=flux
# No package of Debian's has it: it is built from the project's own repository, or a copy of it.
source=${FLUX_SOURCE:-https://github.com/flux-framework/flux-core}
# A user's own instance must not be taken for ours.
unset "${!FLUX_@}"
version=0.88.0
commit=93ccef2f1a33e32941fcb1992dbf3a96366ec506
software=/var/lib/gridengine-test/flux
commands=$software/bin
packages=(autoconf automake g++ gcc git libarchive-dev libhwloc-dev libjansson-dev liblua5.1-0-dev
    libncurses-dev libsqlite3-dev libtool libzmq3-dev make pkg-config python3-cffi python3-dev
    python3-ply python3-yaml uuid-dev)
# An instance takes jobs of its owner alone.
owner=${GRIDENGINE_TEST_USER:-gridtest}
nodes=n1,n2
cores_of_node=8
state=/var/lib/gridengine-flux
uri=local://$state/run/local-0
# Says that this Flux was made by `up`.
mark="# made by schedulers/flux/up"
configuration=$state/flux.toml

is_ours() { [[ -e $configuration ]] && grep -q "^$mark" "$configuration"; }

# Runs a command of Flux's as the owner, who has none of the environment of whoever ran `up`.
as_owner() {
    runuser -u "$owner" -- env -i "PATH=$commands:/usr/sbin:/usr/bin:/sbin:/bin" "FLUX_URI=$uri" \
        "HOME=$(getent passwd "$owner" | cut -d: -f6)" LANG=C.UTF-8 "$@"
}

# True when the instance answers, with both of its nodes.
answers() { [[ $(as_owner timeout 10 flux uptime 2> /dev/null) == *"size 2"* ]]; }

no_brokers() { ! pgrep --full "^$software/libexec/flux/" > /dev/null; }

stop_all() {
    no_brokers && return 0
    pkill -TERM --full "^$software/libexec/flux/cmd/flux-broker" || true
    wait_for 10 no_brokers && return 0
    pkill -KILL --full "^$software/libexec/flux/" || true # its jobs' shells too
    wait_for 10 no_brokers || die "these do not end: $(pgrep --full "^$software/libexec/" | xargs)"
}
