#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains every placement that ships on names, at two depths and five learning rates, and writes the page of this
# folder, README.md. Resumes where it was interrupted.
#
#   examples/benchmark/run.sh [--out DIR] [--store DIR]
#
# --out    directory of the studies; default build/studies/benchmark
# --store  directory of runs that studies share; with it, a new placement trains its own runs alone
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build/studies/benchmark store=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift 2 ;;
    --store) store=(--store "$2"); shift 2 ;;
    *) echo "usage: run.sh [--out DIR] [--store DIR]" >&2; exit 2 ;;
  esac
done
{
  "$root/tools/install_dependencies.sh" run
  "$root/tools/build.sh" run
} >&2

placements=$(cd "$root/plugins/placements" && printf '%s\n' *.pbtxt | sed 's/\.pbtxt$//' | paste -sd,)
for depth in 4 16; do
  "$root/build/quick/bin/plumb" compare "$here/model.pbtxt" --data "$root/examples/data/names.txt" \
    --train "$here/train.pbtxt" --set model.n_layer=$depth --grid "model.block.placement=$placements" --baseline pre \
    --grid 'train.learning_rate=0.001,0.003,0.01,0.03,0.1' --seeds 14 --choosing-seeds 4 --samples 0 \
    --set train.keep_checkpoints=1 "${store[@]}" --out "$out/names_$depth" > "$out.txt.part"
  mkdir -p "$out" && mv "$out.txt.part" "$out/names_$depth.txt"
done
python3 "$here/make_page.py" "$out/names_4" "$out/names_16" > "$out/README.md"
mv "$out/README.md" "$here/README.md"
echo "page  $here/README.md"
