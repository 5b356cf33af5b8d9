#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills and resumes runs and studies and fills their disks for hours, and compares the results with those of
# undisturbed ones bit for bit. Meanwhile it watches the memory of one long run.
#
#   tests/soak.sh 1                      an hour, on build/release
#   tests/soak.sh 0.05 --seed 7          three minutes; the seed chooses signals and moments
#
# The disks are file systems in memory, mounted in a user namespace of their own. If mounting is not allowed,
# no disks are filled and a message says so. The last lines are the statistics. The exit code is 0 if nothing
# differed, nothing was lost and memory did not grow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD
plumb=$source/build/release/bin/plumb

hours=${1:-}
seed=1
[ "${2:-}" != --seed ] || seed=${3:?--seed N}
case $hours in
  '' | *[!0-9.]*)
    echo "usage: soak.sh HOURS [--seed N]" >&2
    exit 2
    ;;
esac
[ -x "$plumb" ] || {
  echo "soak: $plumb is missing; tools/build.sh release plumb builds it" >&2
  exit 1
}

# Runs the script again in a namespace of its own, in which it may mount.
if [ -z "${PLUMB_SOAK_MOUNTS:-}" ]; then
  if unshare --user --map-root-user --mount true 2> /dev/null; then
    PLUMB_SOAK_MOUNTS=yes exec unshare --user --map-root-user --mount "$source/tests/soak.sh" "$@"
  fi
  PLUMB_SOAK_MOUNTS=no
  echo "soak: may not mount here: disks are not filled"
fi

seconds=$(awk -v h="$hours" 'BEGIN { printf "%d", h * 3600 }')
RANDOM=$seed
scratch=$(mktemp -d)
begin=$SECONDS
long_pid=
clean_up() {
  [ -z "$long_pid" ] || { kill -9 "$long_pid" && wait; } 2> /dev/null || true
  umount "$scratch/disk" 2> /dev/null || true
  rm -rf "$scratch"
}
trap clean_up EXIT
fail() {
  echo "soak: FAILED (seed $seed): $*" >&2
  trap - EXIT
  [ -z "$long_pid" ] || kill -9 "$long_pid" 2> /dev/null || true
  echo "soak: left as it was: $scratch" >&2
  exit 1
}

example=$source/examples/why_normalise
data=$source/examples/data/names.txt
cat > "$scratch/train.pbtxt" << 'END'
max_steps: 1500 batch_size: 4 learning_rate: 0.005 warmup_steps: 20 schedule: COSINE
checkpoint_interval: 40 eval_interval: 300 eval_batches: 4
data { format: DOCUMENTS }
END

# These functions run the two disturbed programs, with "resume" or "begin".
train() {  # train begin|resume DIRECTORY
  if [ "$1" = begin ]; then
    exec "$plumb" train "$example/pre.pbtxt" --train "$scratch/train.pbtxt" --data "$data" --out "$2/run" \
      --set model.n_layer=2 --probe-every 50 --quiet
  fi
  exec "$plumb" train --resume --data "$data" --out "$2/run" --quiet
}
compare() {
  exec "$plumb" compare "$example/pre.pbtxt" "$example/post.pbtxt" --train "$scratch/train.pbtxt" --data "$data" \
    --out "$2/run" --seeds 2 --set train.max_steps=300 --set model.n_layer=2 --quiet
}
# Prints checksums of the results that must be equal, without the times of steps.
result_of() {  # result_of train|compare DIRECTORY
  if [ "$1" = train ]; then
    sha256sum < "$2/run/checkpoints/$(cat "$2/run/latest")/model.safetensors"
    sha256sum < "$2/run/checkpoints/$(cat "$2/run/latest")/optimizer.safetensors"
    cut -d, -f1-5,7 "$2/run/metrics.csv" | sha256sum
    sha256sum < "$2/run/probes.jsonl"
  else
    sha256sum < "$2/run/report.json"
    cut -d, -f1-6 "$2/run/table.csv" | sha256sum
  fi
}
run_whole() {  # run_whole PROGRAM DIRECTORY; prints the milliseconds that it took
  local before
  before=$(date +%s%N)
  ("$1" begin "$2") > "$2/log" 2>&1 || fail "$1 alone fails: $(tail -n 3 "$2/log")"
  echo $((($(date +%s%N) - before) / 1000000))
}

kills=0 full=0 resumes=0 rounds=0
declare -A whole_of duration_of

fill() {  # fill DISK LEFT: fills the free space except for LEFT bytes
  local free=$(($(df --output=avail -B1 "$1" | tail -n 1) - $2))
  [ $free -lt 0 ] || head -c $free /dev/zero > "$1/filler" 2> /dev/null || true
}

# Runs a program until it ends by itself, from the start or resumed. It is killed repeatedly, and its disk is
# full from time to time.
disturb() {  # disturb PROGRAM DIRECTORY DISK
  local program=$1 directory=$2 disk=$3 begin_or_resume=begin status filler=$3/filler
  while :; do
    rm -f "$filler"
    # The remaining space is between a few bytes and most of a checkpoint.
    local fills=$((RANDOM % 6)) left=$((RANDOM * 4)) filling=
    if [ -n "$disk" ] && [ $fills = 0 ]; then fill "$disk" $left; fi
    # A run that was killed before its first checkpoint has nothing to resume.
    if [ "$program" = train ] && [ $begin_or_resume = resume ] && [ ! -e "$directory/run/latest" ]; then
      rm -rf "${directory:?}/run"
      begin_or_resume=begin
    fi
    ("$program" $begin_or_resume "$directory") > "$scratch/log" 2>&1 &
    local pid=$!
    local wait_ms=$(((RANDOM * 32768 + RANDOM) % (duration_of[$program] * 6 / 5)))
    local signal
    case $((RANDOM % 6)) in 0) signal=TERM ;; 1) signal=HUP ;; 2) signal=INT ;; *) signal=KILL ;; esac
    (
      sleep "$((wait_ms / 1000)).$(printf %03d $((wait_ms % 1000)))"
      kill -$signal $pid 2> /dev/null
    ) &
    local killer=$!
    if [ -n "$disk" ] && [ $fills = 1 ]; then
      (sleep "0.$(printf %03d $((wait_ms / 3 % 1000)))"; fill "$disk" $left) &
      filling=$!
    fi
    status=0
    { wait $pid; } 2> /dev/null || status=$?  # hides the shell message about the killed process
    { kill $killer && wait $killer; } 2> /dev/null || true
    if [ -n "$filling" ]; then wait $filling || true; fi
    case $status in
      0) break ;;
      137 | 130 | 129 | 143) kills=$((kills + 1)) ;;
      *)
        # Only a full disk may end the program with an error, and the error must name it.
        grep -qE 'No space left|the disk has' "$scratch/log" ||
          fail "$program ends with $status: $(tail -n 5 "$scratch/log")"
        full=$((full + 1))
        ;;
    esac
    begin_or_resume=resume
    resumes=$((resumes + 1))
  done
  rm -f "$filler"
  [ "$(result_of "$program" "$directory")" = "${whole_of[$program]}" ] ||
    fail "$program differs from the one that was left alone, after $kills kills"
}

memory_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$long_pid/status"; }

for program in train compare; do
  mkdir "$scratch/$program"
  duration_of[$program]=$(run_whole $program "$scratch/$program")
  whole_of[$program]=$(result_of $program "$scratch/$program")
  echo "soak: $program alone takes ${duration_of[$program]} ms"
done

mkdir "$scratch/long"
("$plumb" train "$example/pre.pbtxt" --train "$scratch/train.pbtxt" --data "$data" --out "$scratch/long/run" \
  --set model.n_layer=2 --set train.max_steps=100000000 --probe-every 100 --threads 1 --quiet \
  > "$scratch/long/log" 2>&1) &
sleep 1
long_pid=$(pgrep -P $! -x plumb || echo $!)
early=$((seconds / 12 < 300 ? seconds / 12 : 300))  # five minutes of an hour
early_kib=

while [ $((SECONDS - begin)) -lt "$seconds" ]; do
  program=train
  [ $((rounds % 4)) != 3 ] || program=compare
  disk=
  mkdir -p "$scratch/disk"
  if [ "$PLUMB_SOAK_MOUNTS" = yes ] && [ $((rounds % 2)) = 1 ]; then
    mount -t tmpfs -o size=16m none "$scratch/disk"
    disk=$scratch/disk
  fi
  disturb $program "$scratch/disk" "$disk"
  [ -z "$disk" ] || umount "$scratch/disk"
  rm -rf "$scratch/disk"
  rounds=$((rounds + 1))
  if [ -z "$early_kib" ] && [ $((SECONDS - begin)) -ge $early ]; then
    early_kib=$(memory_kib)
    early_at=$((SECONDS - begin))
  fi
  kill -0 "$long_pid" 2> /dev/null || fail "the long run ended: $(tail -n 3 "$scratch/long/log")"
done
late_kib=$(memory_kib)
[ -n "$early_kib" ] || fail "too short to look at memory twice"
steps=$(($(wc -l < "$scratch/long/run/metrics.csv") - 1))

echo "soak: $rounds rounds in $(((SECONDS - begin) / 60)) minutes, seed $seed: $kills kills, $full full disks, $resumes resumes; all results identical to the bit"
echo "soak: a run of $steps steps has $early_kib KiB of memory after $early_at s, $late_kib KiB after $((SECONDS - begin)) s"
[ "$late_kib" -le $((early_kib * 102 / 100 + 1024)) ] || fail "memory grows"
