# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
# shellcheck source=schedulers/common.sh
source "$here/../common.sh"
# A user's own settings must not lead these scripts elsewhere.
unset "${!OAR@}" PERL5LIB PERL5OPT
system=oar
# Debian 13's OAR; it is in Perl, and runs with this machine's.
suite=trixie
software=/var/lib/gridengine-test/oar
commands=$software/bin
packages=(openssh-client patchelf procps libdbi-perl libdbd-pg-perl libcapture-tiny-perl)
nodes=(n1 n2)
cores_of_node=4
configuration=/etc/oar/oar.conf
# Says that this OAR was made by `up`, so that neither `up` nor `down` ever touches another.
mark="# made by schedulers/oar/up"
user=oar
server_port=6666 # OAR's own default, as the next
ssh_port=6667
database_port=6668
# Where OAR's programs look for their parts, and what is there instead: links that `down` removes.
declare -A links=([/usr/lib/oar]=$software/usr/lib/oar
    [/usr/share/perl5/OAR]=$software/usr/share/perl5/OAR)
state=/var/lib/oar # also the home of the user oar
log=/var/log/oar.log
run_directory=/run/oar
database=$state/database
password=$state/database-password
declare -A pid_file=([postgres]=$database/postmaster.pid [sshd]=$run_directory/sshd.pid
    [perl]=$run_directory/almighty.pid)
# Jobs must not see the environment of whoever ran `up`.
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin")

is_ours() { [[ -e $configuration ]] && grep -q "^$mark" "$configuration"; }

refuse_foreign_oar() {
    [[ ! -e $configuration ]] || is_ours ||
        die "this machine has a $configuration that was not made by $here/up; leaving it alone"
    local link
    for link in "${!links[@]}"; do
        [[ ! -e $link || $(readlink "$link") == "${links[$link]}" ]] ||
            die "this machine has a $link that was not made by $here/up; leaving it alone"
    done
}

run() { # run COMMAND...: as the user oar
    (cd / && exec runuser -u "$user" -- "${clean[@]}" "$@")
}

postgresql() { # postgresql PROGRAM ARGUMENTS...: as the user oar
    run "$(echo "$software"/usr/lib/postgresql/*/bin)/$1" "${@:2}"
}

sql() { # sql [OPTION...]: what is to be done on standard input
    postgresql psql -qAt -X -v ON_ERROR_STOP=1 -h "$run_directory" -p "$database_port" "$@"
}

stop() { stop_daemon "$1" "${pid_file[$1]}" "${@:2}"; }

# Almighty is the first of its process group, whose others outlive it when it is killed.
stop_server() {
    local group
    [[ -s ${pid_file[perl]} ]] && read -r group < "${pid_file[perl]}" || return 0
    stop perl
    pkill -KILL --pgroup "$group" --euid "$user" || true # they have mostly ended with it
    rm -f "${pid_file[perl]}"
}

stop_all() {
    stop_server
    stop sshd
    stop postgres INT # at once, though clients are connected
}

# True when its server takes messages and the nodes are there.
answers() {
    is_there perl "${pid_file[perl]}" &&
        [[ $(timeout 10 "$commands/oarnodes" --list 2> /dev/null | wc -l) == "${#nodes[@]}" ]]
}

discard_state() { rm -rf --one-file-system "${state:?}"; }
