#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plumb under Slurm, for which it starts a cluster of one host. Training and comparing with srun, and an
# array of jobs, give the bits of one process. An error or a killed rank ends the job. Skipped (77) without
# root, Slurm's programs (Debian: slurmctld slurmd slurm-client munge) or its PMIx plugin.
#
#   slurm_test.sh BUILD_DIRECTORY
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
plumb=$build/bin/plumb
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "starting Slurm needs root"
PATH=$PATH:/usr/sbin
for program in munged mungekey slurmctld slurmd srun sbatch; do
  command -v $program > /dev/null || skip "there is no $program"
done
srun --mpi=list 2>&1 | grep -w pmix > /dev/null || skip "this Slurm has no PMIx"

scratch=$(mktemp -d)
daemons=()
end_cluster() {
  [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2> /dev/null || true
  wait
  rm -rf "$scratch"
}
trap end_cluster EXIT
# fail WHAT prints the output of the last command and fails.
fail() {
  echo "$*" >&2
  cat "$scratch"/{out,err} >&2 2> /dev/null || true
  exit 1
}

# -- The cluster: this host, as if it had four processors
chmod 711 "$scratch"
mkdir "$scratch"/{munge,state,spool,run}
host=$(hostname -s)
export SLURM_CONF=$scratch/slurm.conf
cat > "$SLURM_CONF" << END
ClusterName=plumb
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge/socket
CredType=cred/munge
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/run/slurmctld.pid
SlurmdPidFile=$scratch/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
mungekey --create --keyfile="$scratch/munge/key" > /dev/null
chmod 755 "$scratch/munge"
munged --force --foreground --key-file="$scratch/munge/key" --socket="$scratch/munge/socket" \
  --pid-file="$scratch/munge/pid" --log-file="$scratch/munge/log" --seed-file="$scratch/munge/seed" \
  > "$scratch/munged.log" 2>&1 &
daemons+=($!)
for ((i = 0; i < 100; ++i)); do [ -S "$scratch/munge/socket" ] && break; sleep 0.1; done
slurmctld -D > "$scratch/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D -N "$host" > "$scratch/slurmd.log" 2>&1 &
daemons+=($!)
ready=
for ((i = 0; i < 100; ++i)); do
  if sinfo -h -o %t 2> /dev/null | grep -x idle > /dev/null; then ready=yes; break; fi
  sleep 0.2
done
[ -n "$ready" ] || { tail -5 "$scratch"/*.log; skip "Slurm does not start here"; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1
# job CODE RANKS ARGUMENTS... runs plumb with these arguments and expects the exit code CODE.
job() {
  local wanted=$1 ranks=$2 code=0
  shift 2
  srun -n "$ranks" --cpus-per-task=1 --mpi=pmix "$plumb" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
  [ $code = "$wanted" ] || fail "srun -n $ranks plumb $*: exit code $code, not $wanted"
}
alone() {
  "$plumb" "$@" > "$scratch/out" 2> "$scratch/err" || fail "plumb $*: exit code $?"
}
examples=$source/examples
study=$examples/why_normalise
data=$examples/data/names.txt
cd "$scratch"

# -- Training
recipe=(train "$study/pre.pbtxt" --train "$study/train.pbtxt" --data "$data" --quiet --threads 1 --set train.batch_size=8
  --set train.units=8 --set train.checkpoint_interval=10 --set train.checkpoint_seconds=0)
weights() { cat "$1"/checkpoints/step-000030/*.safetensors | md5sum; }
alone "${recipe[@]}" --set train.max_steps=30 --out alone
job 0 3 "${recipe[@]}" --set train.max_steps=30 --out three
[ "$(weights three)" = "$(weights alone)" ] || fail "three ranks do not give the bits of one process"
job 0 2 "${recipe[@]}" --set train.max_steps=30 --stop-at 10 --out resumed
job 0 3 train --data "$data" --quiet --threads 1 --resume --out resumed
[ "$(weights resumed)" = "$(weights alone)" ] || fail "resumed by three ranks, not the bits of one process"
echo "trains: $(weights alone)"

job 2 2 "${recipe[@]}" --set train.units=1 --out error
[ "$(grep -c '^error: ' err)" = 1 ] || fail "an error is not reported once"

srun -n 2 --kill-on-bad-exit=1 --cpus-per-task=1 --mpi=pmix "$plumb" "${recipe[@]}" --set train.max_steps=1000000 --out killed > out 2> err &
job=$!
victim=
for ((i = 0; i < 300; ++i)); do
  if [ -e killed/latest ]; then
    for process in $(pgrep -f -- "--out killed"); do
      if [ "$(readlink "/proc/$process/exe")" = "$(realpath "$plumb")" ] &&
        grep -zx SLURM_PROCID=1 "/proc/$process/environ" > /dev/null; then
        victim=$process
      fi
    done
    break
  fi
  sleep 0.1
done
[ -n "$victim" ] || { kill $job; fail "there is no rank 1"; }
kill -9 "$victim"
code=0
wait $job || code=$?
[ $code != 0 ] || fail "a job with a killed rank ends with 0"
job 0 3 train --data "$data" --quiet --threads 1 --resume --set train.max_steps="$(($(sed 's/step-0*//' killed/latest) + 10))" --out killed
echo "a killed rank: exit code $code, and three continued"

# -- A study, on ranks and as an array of jobs that share a store
words=(compare "$study/pre.pbtxt" "$study/post.pbtxt" --data "$data" --train "$study/train.pbtxt" --set train.max_steps=10
  --samples 1 --threads 1 --quiet)
alone "${words[@]}" --out whole
job 0 3 "${words[@]}" --out ranks
{
  printf '#!/bin/sh\n#SBATCH --array=1-3 --cpus-per-task=1\n'
  printf '%q ' "$plumb" "${words[@]}"
  # shellcheck disable=SC2016
  echo '--seed "$SLURM_ARRAY_TASK_ID" --store store --out "part$SLURM_ARRAY_TASK_ID"'
} > array.sh
sbatch --wait array.sh > out 2> err || fail "the array: exit code $?"
alone "${words[@]}" --store store --out collected
for file in table.csv table.md report.json; do
  for directory in ranks collected; do
    cmp whole/$file $directory/$file || fail "$directory/$file is not that of one process"
  done
done
echo "compares: $(md5sum < whole/report.json)"
