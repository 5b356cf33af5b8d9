# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Common parts of the tests under a launcher, to be sourced. Sets `is_open_mpi` and the array `launch`: Open
# MPI's or MPICH's mpirun on this machine, with more ranks than processors if necessary. Without mpirun a
# message says so and the test ends as skipped (77).
command -v mpirun > /dev/null || {
  echo "skipped: there is no mpirun"
  exit 77
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch=(mpirun) is_open_mpi=
if mpirun --version 2> /dev/null | grep 'Open MPI' > /dev/null; then
  launch+=(--oversubscribe --bind-to none)
  # shellcheck disable=SC2034
  is_open_mpi=yes
fi
# Tests search for a rank's error as "^ *error: ", because Open MPI 5 may print spaces of a message of its own
# before it. Ranks of one machine use shared memory and do not search for its network.
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1

# fail WHAT prints the output of the last command, in "$scratch/out" and "$scratch/err", and fails.
fail() {
  echo "$*" >&2
  # shellcheck disable=SC2154  # the test that reads this file sets scratch
  cat "$scratch"/{out,err} >&2 2> /dev/null || true
  exit 1
}

# ends_with CODE RANKS COMMAND... fails the test unless the job ends with CODE.
ends_with() {
  local wanted=$1 ranks=$2 code=0
  shift 2
  "${launch[@]}" -n "$ranks" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
  [ $code = "$wanted" ] || fail "$*: exit code $code and not $wanted"
}
