#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains every placement that ships on names, at two depths and five learning rates, and writes a page that ranks
# them: OUT/README.md. Resumes where it was interrupted.
#
#   examples/benchmark/run.sh [--quick] [--out DIR] [--store DIR]
#
# --quick  three placements for a few steps, to see the page without results
# --out    directory of the studies and the page; default build/studies/benchmark
# --store  directory of runs that studies share; with it, a new placement trains its own runs alone
#
# PLUMB is the plumb program to use; without it, one is built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
placements=$(cd "$root/plugins/placements" && printf '%s\n' *.pbtxt | sed 's/\.pbtxt$//' | paste -sd,)
out=$root/build/studies/benchmark
seeds=(--seeds 14 --choosing-seeds 4)
more=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick)
      placements=pre,post,none
      seeds=(--seeds 5 --choosing-seeds 2)
      more+=(--set train.max_steps=20)
      ;;
    --out) out=$2; shift ;;
    --store) more+=(--store "$2"); shift ;;
    *) echo "usage: run.sh [--quick] [--out DIR] [--store DIR]" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "${PLUMB:-}" ]; then
  {
    "$root/tools/install_dependencies.sh" run
    "$root/tools/build.sh" run
  } >&2
  PLUMB=$root/build/quick/bin/plumb
fi

for depth in 4 16; do
  "$PLUMB" compare "$here/model.pbtxt" --data "$root/examples/data/names.txt" --train "$here/train.pbtxt" \
    --set model.n_layer=$depth --grid "model.block.placement=$placements" --baseline pre \
    --grid 'train.learning_rate=0.001,0.003,0.01,0.03,0.1' --samples 0 --set train.keep_checkpoints=1 \
    "${seeds[@]}" "${more[@]}" --out "$out/names_$depth" > /dev/null
done
python3 "$here/make_page.py" "$out/names_4" "$out/names_16" > "$out/README.md.part"
mv "$out/README.md.part" "$out/README.md"
echo "page  $out/README.md"
