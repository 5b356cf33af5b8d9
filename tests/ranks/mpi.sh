# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What tests under a launcher have in common; sourced. Sets the array `launch`: Open MPI's or MPICH's mpirun
# on this machine, more ranks than it has processors if need be, and `is_open_mpi`. Where there is none it says so and ends
# the test as skipped (77).
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
# A rank's error is searched for as "^ *error: ": Open MPI 5 may print a blank before it, of a message of its own.
# Ranks of this machine share memory; its network is not looked for.
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1

# fail WHAT: with what the last command printed, which is in "$scratch/out" and "$scratch/err".
fail() {
  echo "$*" >&2
  cat "$scratch"/{out,err} >&2 2> /dev/null || true
  exit 1
}

# ends_with CODE RANKS COMMAND...: the job, or the test fails.
ends_with() {
  local wanted=$1 ranks=$2 code=0
  shift 2
  "${launch[@]}" -n "$ranks" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
  [ $code = "$wanted" ] || fail "$*: exit code $code and not $wanted"
}
