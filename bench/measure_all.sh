#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all measurements of docs/performance/, in about ten minutes on an idle machine. The results go
# into docs/performance/results.json under this machine's processor, and from there into the pages.
#
#   bench/measure_all.sh [OUT [PART..]]   parts: training sampling profile placements scaling record
#
# OUT: directory of the measurements as JSON and plots (default: build/measurements). Without parts: all.
# The part `record` only records the measurements in OUT. BUILD: the build directory (default:
# build/release) with plumb and step_server. TORCH_PYTHON: see compare_peers.sh. PROCESSOR: the processor's
# name in the pages (default: from plumb --version). RESULTS: another file than results.json; then the pages
# are not written. QUICK=1: few rounds, as a smoke test; not recorded unless `record` is named.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
out=${1:-$root/build/measurements}
[ $# = 0 ] || shift
quick=${QUICK:-}
all="training sampling profile placements scaling"
[ -n "$quick" ] || all+=" record"
parts=${*:-$all}
export BUILD=${BUILD:-$root/build/release}
plumb=$BUILD/bin/plumb
python=${PYTHON:-python3}
gpt2=$here/models/gpt2.pbtxt
results=${RESULTS:-$root/docs/performance/results.json}
mkdir -p "$out"

# Describes the machine of the measurement, without names.
machine() {
  local candidate torch=
  for candidate in ${TORCH_PYTHON:-python3 /usr/bin/python3}; do
    if [ -z "$torch" ] && "$candidate" -c 'import torch' 2> /dev/null; then torch=$candidate; fi
  done
  "$python" -B "$here/record_results.py" machine "$plumb" ${torch:+"$torch"} > "$out/machine.json"
  "$plumb" --version
  echo "$(nproc) processors; load $(cut -d' ' -f1 /proc/loadavg)"
}

training() {
  bash "$here/compare_peers.sh" --json "$out/training.json" ${quick:+--quick}
}

# Numbers the files in the order of the table.
sampling() {
  local rounds=${quick:+1} number=0 options
  rounds=${rounds:-5}
  rm -rf "$out/sampling"
  mkdir -p "$out/sampling"
  for options in "prompt f32" "prompt bf16" "decode f32 --tokens 128" "decode bf16 --tokens 128" \
    "decode int8 --tokens 128" "decode bf16 --sequences 8"; do
    number=$((number + 1))
    # shellcheck disable=SC2086  # split into words on purpose
    set -- $options
    "$plumb" bench "$gpt2" --only "$1" --weights "$2" "${@:3}" --rounds "$rounds" --json \
      > "$out/sampling/$number.json"
  done
}

profile() {
  local rounds=${quick:+1} dtype shape number=0
  rounds=${rounds:-3}
  rm -rf "$out/profile"
  mkdir -p "$out/profile"
  for dtype in f32 bf16; do
    for shape in "4 64" "1 1024"; do
      number=$((number + 1))
      "$plumb" bench "$gpt2" --only train --dtype "$dtype" --batch "${shape% *}" \
        --seq "${shape#* }" --rounds "$rounds" --profile --json > "$out/profile/$number.json"
    done
  done
}

placements() {
  "$python" -B "$here/placement_cost.py" --build "$BUILD" \
    --json "$out/placements.json" --rounds "$([ -n "$quick" ] && echo 2 || echo 7)"
}

scaling() {
  "$python" -B "$here/scaling.py" --build "$BUILD" --out "$out/scaling" ${quick:+--quick}
}

record() {
  "$python" -B "$here/record_results.py" record "$out" "$results" --processor "${PROCESSOR:-}"
  [ -z "${RESULTS:-}" ] || return 0
  "$python" -B "$here/fill_page.py" "$results" "$root/README.md" \
    "$root/docs/performance/results.md" "$root/docs/comparison.md"
}

[ "$parts" = record ] || machine
for name in $parts; do
  case $name in
    training | sampling | profile | placements | scaling | record)
      printf '\n%s\n' "$name"
      "$name"
      ;;
    *)
      echo "unknown part $name; there are training sampling profile placements scaling record" >&2
      exit 2
      ;;
  esac
done
