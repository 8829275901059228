# What up and down share; sourced by both.
# shellcheck shell=bash disable=SC2034
# shellcheck source=schedulers/common.sh
source "$here/../common.sh"
# A user's own settings must not lead these scripts to another cluster.
unset "${!SLURM@}" "${!SBATCH@}" "${!SQUEUE@}" "${!SINFO@}" "${!SCANCEL@}"
system=slurm
# slurmdbd and MariaDB are for tests of accounts, which bring up a Slurm of their own with a
# database of its own; `up` starts none. libpmix-dev has the name by which `srun --mpi=pmix` loads
# PMIx.
packages=(munge slurmctld slurmd slurm-client slurmdbd mariadb-server-core mariadb-client-core
    libpmix-dev)
nodes=(n1 n2)
slots_of_node=4
first_port=17001
configuration=/etc/slurm/slurm.conf
# Says that this cluster was made by `up`, so that neither `up` nor `down` ever touches another.
mark="# made by schedulers/slurm/up"
state=/var/lib/slurm/gridengine
logs=/var/log/slurm
run_directory=/run/slurm
munge_directory=/run/munge
munge_log=/var/log/munge/munged.log
munged_pid=$munge_directory/munged.pid
slurmctld_pid=$run_directory/slurmctld.pid
# Jobs inherit the daemon's environment, and must not see that of whoever ran `up`.
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin")

pid_file_of() { echo "$run_directory/slurmd-$1.pid"; } # pid_file_of NODE

is_ours() { [[ -e $configuration ]] && grep -q "^$mark" "$configuration"; }

refuse_foreign_cluster() {
    [[ ! -e $configuration ]] || is_ours ||
        die "this machine has a $configuration that was not made by $here/up; leaving it alone"
}

munge_answers() { timeout 5 munge -n 2> /dev/null | timeout 5 unmunge > /dev/null 2>&1; }

answers() { timeout 5 scontrol ping 2> /dev/null | grep -q 'is UP'; }
