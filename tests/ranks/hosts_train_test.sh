#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plumb train and plumb compare on several hosts: their files equal those of one process. A host is cut off
# during a run, which then continues without it.
#
#   hosts_train_test.sh PLUMB LIBPLUMB_MPI
set -euo pipefail
plumb=$1
export PLUMB_MPI_LIBRARY=$2 OMP_NUM_THREADS=1
root=$(realpath "$(dirname "$0")/../..")
# shellcheck source=tests/ranks/mpi.sh
. "$root/tests/ranks/mpi.sh"
# shellcheck source=tests/ranks/hosts.sh
. "$root/tests/ranks/hosts.sh"
scratch=$(mktemp -d)
trap 'remove_hosts; rm -rf "$scratch"' EXIT
make_hosts 3
exported=(-x PLUMB_MPI_LIBRARY -x OMP_NUM_THREADS)
job=("${launch_hosts[@]}" "${exported[@]}")

# run WHAT COMMAND... runs a command, and fails the test with its output if it fails.
run() {
  local what=$1 code=0
  shift
  "$@" > "$scratch/out" 2>&1 || code=$?
  [ $code = 0 ] || fail "$what: exit code $code"
}

# Prints the results of a run: its losses, and the weights and optimizer states of its last checkpoint.
content() {
  cut -d, -f1-5,7 "$1/metrics.csv"
  (cd "$1/checkpoints/$(cat "$1/latest")" && md5sum ./*.safetensors)
}

study=$root/examples/why_normalise
recipe=("$study/pre.pbtxt" --train "$study/train.pbtxt" --data "$root/examples/data/names.txt" --quiet
  --set train.batch_size=8 --set train.units=8 --set train.checkpoint_interval=5 --set train.checkpoint_seconds=0)

train=(train "${recipe[@]}" --set train.max_steps=20)
run "one process" "$plumb" "${train[@]}" --out "$scratch/one"
run "train on 3 hosts" "${job[@]}" -n 3 "$plumb" "${train[@]}" --out "$scratch/three"
diff <(content "$scratch/one") <(content "$scratch/three") > "$scratch/out" || fail "train on 3 hosts: other files"
echo "train on 3 hosts: the files of one process"

compare=(compare "$study/pre.pbtxt" "$study/post.pbtxt" --train "$study/train.pbtxt" --data "$root/examples/data/names.txt"
  --seeds 2 --samples 2 --threads 1 --set train.max_steps=10)
run "compare, one process" "$plumb" "${compare[@]}" --out "$scratch/study1"
run "compare on 3 hosts" "${job[@]}" -n 3 "$plumb" "${compare[@]}" --out "$scratch/study3"
for file in "$scratch"/study1/*; do
  name=${file##*/}
  # These files contain times, hosts and speeds.
  case $name in runs | timing.csv | provenance.json | report.html) continue ;; esac
  diff -r "$file" "$scratch/study3/$name" > "$scratch/out" || fail "compare on 3 hosts: another $name"
done
echo "compare on 3 hosts: the files of one process"

# A cable is cut during the run. Then the two remaining hosts continue it, and one process completes it.
code=0
"${job[@]}" -n 3 "$plumb" train "${recipe[@]}" --set train.max_steps=100000 --rank-grace 5 --out "$scratch/cut" \
  > "$scratch/out" 2>&1 &
mpirun=$!
until [ -s "$scratch/cut/latest" ]; do
  kill -0 $mpirun 2> /dev/null || fail "train: ended before it was cut off"
  sleep 0.1
done
cut_host 3
begin=$SECONDS
wait $mpirun || code=$?
echo "a host cut off: mpirun ended after $((SECONDS - begin)) s with exit code $code"
[ $code != 0 ] || fail "a host cut off: exit code 0"
grep -q '^ *note: ranks have waited .* s for rank 2 on host plumb-host3' "$scratch/out" || fail "a host cut off: not named"
done_steps=$(sed 's/[^0-9]*0*//' "$scratch/cut/latest")
resume=(train --quiet --data "$root/examples/data/names.txt" --resume --out "$scratch/cut")
launch_on 1 2
run "two hosts continue" "${launch_hosts[@]}" "${exported[@]}" -n 2 "$plumb" "${resume[@]}" --stop-at $((done_steps + 10))
run "one host continues" "$plumb" "${resume[@]}" --stop-at $((done_steps + 20))
run "undisturbed" "$plumb" train "${recipe[@]}" --set train.max_steps=100000 --stop-at $((done_steps + 20)) --out "$scratch/whole"
diff <(content "$scratch/whole") <(content "$scratch/cut") > "$scratch/out" || fail "after a cut: other files"
echo "cut off after $done_steps steps or more, continued by two hosts and by one: the files of an undisturbed run"
