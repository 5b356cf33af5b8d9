#!/usr/bin/env bash
# All measurements of docs/performance.md, in about ten minutes on an idle machine: tables as
# markdown, turns as JSON, plots as SVG.
#
#   bench/measure_all.sh OUT [PART..]     parts: peers bench profile placements scaling page
#
# BUILD: the build directory (default: build/release) with plumb and step_server. TORCH_PYTHON as for
# compare_peers.sh. QUICK=1: few rounds, to see that it runs. Without parts: all but `page`, which
# puts the tables and the plots of OUT into docs/performance.md and docs/performance/.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?usage: measure_all.sh OUT [PART..]}
shift
parts=${*:-peers bench profile placements scaling}
export BUILD=${BUILD:-$here/../build/release}
plumb=$BUILD/bin/plumb
python=${PYTHON:-python3}
quick=${QUICK:-}
mkdir -p "$out"

# Where it was measured, without names.
machine() {
  echo "$("$plumb" --version); $(nproc) processors; load $(cut -d' ' -f1 /proc/loadavg)"
}

# Prints a title and the command's output, into a file of its own as well.
part() {
  local name=$1
  shift
  printf '\n## %s\n' "$name"
  "$@" | tee "$out/$name.md"
}

peers() {
  bash "$here/compare_peers.sh" --markdown --json "$out/peers.json" ${quick:+--quick}
}

bench() {
  local rounds=${quick:+1} gpt2=$here/models/gpt2.pbtxt
  rounds=${rounds:-5}
  "$plumb" bench "$gpt2" --only prompt --rounds "$rounds"
  "$plumb" bench "$gpt2" --only prompt --weights bf16 --rounds "$rounds"
  for weights in f32 bf16 int8; do
    "$plumb" bench "$gpt2" --only decode --weights "$weights" --tokens 128 --rounds "$rounds"
  done
  "$plumb" bench "$gpt2" --only decode --weights bf16 --sequences 8 --rounds "$rounds"
}

profile() {
  local rounds=${quick:+1} gpt2=$here/models/gpt2.pbtxt
  rounds=${rounds:-3}
  for dtype in f32 bf16; do
    for shape in "4 64" "1 1024"; do
      "$plumb" bench "$gpt2" --only train --dtype "$dtype" --batch "${shape% *}" \
        --seq "${shape#* }" --rounds "$rounds" --profile
      echo
    done
  done
}

placements() {
  "$python" -B "$here/placement_cost.py" --build "$BUILD" --markdown \
    --json "$out/placements.json" --rounds "$([ -n "$quick" ] && echo 2 || echo 7)"
}

scaling() {
  "$python" -B "$here/scaling.py" --build "$BUILD" --out "$out/scaling" ${quick:+--quick}
}

page() {
  mkdir -p "$here/../docs/performance"
  cp "$out"/scaling/*.svg "$here/../docs/performance/"
  "$python" -B "$here/fill_page.py" "$out" "$here/../docs/performance.md"
}

machine | tee "$out/machine.txt"
for name in $parts; do
  case $name in
    peers | bench | profile | placements) part "$name" "$name" ;;
    scaling | page) "$name" ;;
    *)
      echo "unknown part $name; there are peers bench profile placements scaling page" >&2
      exit 2
      ;;
  esac
done
