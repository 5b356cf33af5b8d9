#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds plumb, installs its peers, runs all measurements of docs/performance/ and writes the pages: about an hour on
# an idle machine, and the time of building and installing once. The results go into docs/performance/results.json
# under this machine's processor, and from there into the pages.
#
#   bench/measure_all.sh [OUT [PART..]]   parts: training studies sampling profile placements scaling more_cores gemm record
#
# OUT: directory of the measurements as JSON and plots (default: build/measurements). Without parts: all that OUT does
# not hold yet, so the same command continues after an interruption. A changed build or another processor discards it.
# The part `record` only records the measurements in OUT. BUILD: a build directory (default: build/release, which is
# built). PYTHON, TORCH_PYTHON, LLM_C: see compare_peers.sh. PROCESSOR: the processor's name in the pages (default:
# from plumb --version). RESULTS: another file than results.json; then the pages are not written. QUICK=1: few rounds
# and small models, as a smoke test; not recorded unless `record` is named.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
out=${1:-$root/build/measurements}
[ $# = 0 ] || shift
quick=${QUICK:+1}
all="training studies sampling profile placements scaling more_cores gemm"
for name in "$@"; do
  case " $all record " in
    *" $name "*) ;;
    *)
      echo "unknown part $name; there are $all record" >&2
      exit 2
      ;;
  esac
done
if [ -z "${BUILD:-}" ] && [ "$*" != record ]; then
  "$root/tools/build.sh" release plumb plumb_shared plugins/all step_server gemm_benchmark
fi
BUILD=$(realpath "${BUILD:-$root/build/release}")
export BUILD
plumb=$BUILD/bin/plumb
python=${PYTHON:-python3}
gpt2=$here/models/gpt2.pbtxt
results=${RESULTS:-$root/docs/performance/results.json}
mkdir -p "$out"
new=$out/new  # a part writes here, and is moved when it is complete
problem=

training() {  # continues by itself, so it writes to its final place
  bash "$here/compare_peers.sh" --json "$out/training.json" ${quick:+--quick --only shakespeare,decode} ||
    problem="training: some pairs were not measured, see above; the same command tries them again"
}

studies() {
  local seeds=(--seeds "20,100")
  [ -z "$quick" ] || seeds=(--seeds "2,3" --rounds 1)
  bash "$here/compare_peers.sh" "${seeds[@]}" --json "$new/studies.json"
}

# Numbers the files in the order of the table.
sampling() {
  local number=0 options
  mkdir "$new/sampling"
  for options in "prompt f32" "prompt bf16" "decode f32 --tokens 128" "decode bf16 --tokens 128" \
    "decode int8 --tokens 128" "decode bf16 --sequences 8"; do
    number=$((number + 1))
    # shellcheck disable=SC2086  # split into words on purpose
    set -- $options
    "$plumb" bench "$gpt2" --only "$1" --weights "$2" "${@:3}" --rounds "${quick:-5}" --json \
      > "$new/sampling/$number.json"
  done
}

profile() {
  local dtype shape number=0
  mkdir "$new/profile"
  for dtype in f32 bf16; do
    for shape in "4 64" "1 1024"; do
      number=$((number + 1))
      "$plumb" bench "$gpt2" --only train --dtype "$dtype" --batch "${shape% *}" \
        --seq "${shape#* }" --rounds "${quick:-3}" --profile --json > "$new/profile/$number.json"
    done
  done
}

placements() {
  "$python" -B "$here/placement_cost.py" --build "$BUILD" --json "$new/placements.json" ${quick:+--rounds 2}
}

scaling() {
  "$python" -B "$here/scaling.py" --build "$BUILD" --out "$new/scaling" ${quick:+--quick}
}

more_cores() {
  "$python" -B "$here/more_cores.py" --build "$BUILD" --json "$new/more_cores.json" ${quick:+--rounds 1 --only baby}
}

gemm() {
  "$BUILD/bin/gemm_benchmark" "$(nproc)" ${quick:+0.05 narrow} | tee "$new/gemm.txt"
}

record() {
  "$python" -B "$here/record_results.py" record "$out" "$results" --processor "${PROCESSOR:-}"
  [ -z "${RESULTS:-}" ] || return 0
  "$python" -B "$here/fill_page.py" "$results" "$root/README.md" \
    "$root/docs/performance/results.md"
}

if [ "$*" != record ]; then
  stamp="$quick $(cd "$BUILD" && sha256sum bin/plumb bin/step_server lib/libplumb.so && "$plumb" --version)"
  if [ "$(cat "$out/stamp" 2> /dev/null)" != "$stamp" ]; then
    rm -rf "$out"/{training.json,studies.json,sampling,profile,placements.json,scaling,more_cores.json,gemm.txt,machine.json} "$out"/*.done
    printf '%s\n' "$stamp" > "$out/stamp"
  fi
  "$python" -B "$here/record_results.py" machine "$plumb" > "$out/machine.json"
  "$plumb" --version
  echo "$(nproc) processors; load $(cut -d' ' -f1 /proc/loadavg)"
fi
trap '[ $? = 0 ] || echo "measure_all.sh did not complete; the same command continues" >&2' EXIT
trap 'exit 1' INT TERM
parts=$*
if [ -z "$parts" ]; then
  for name in $all; do
    [ -e "$out/$name.done" ] || parts+=" $name"
  done
  [ -n "$quick" ] || parts+=" record"
fi
for name in $parts; do
  printf '\n%s, %s\n' "$name" "$(date +%T)"
  rm -rf "$new" "$out/$name.done"
  mkdir "$new"
  "$name"
  for file in "$new"/*; do
    [ -e "$file" ] || continue
    rm -rf "${out:?}/${file##*/}"
    mv "$file" "$out"
  done
  [ -n "$problem" ] && [ "$name" = training ] || [ "$name" = record ] || touch "$out/$name.done"
done
rm -rf "$new"
if [ -n "$problem" ]; then
  echo "$problem" >&2
  exit 1
fi
