#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws every placement of plugins/placements into docs/images/placements/NAME.svg, except those
# that `plumb describe --svg` refuses as too large for a picture.
#
#   tools/make_placement_pictures.sh [PLUMB]          draws; PLUMB: build/quick/bin/plumb
#   tools/make_placement_pictures.sh --check [PLUMB]  fails, with their names, if pictures differ from
#                                                     newly drawn ones
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=no
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
plumb=${1:-build/quick/bin/plumb}
pictures=docs/images/placements
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/pictures"
for file in plugins/placements/*.pbtxt; do
  name=$(basename "$file" .pbtxt)
  # If every layer reads all layers before it, no two layers are alike, and four are enough.
  for n_layer in 12 4; do
    cat > "$work/$name.pbtxt" << MODEL
name: "$name"
n_layer: $n_layer
n_head: 4
d_model: 64
context_length: 64
vocab_size: 65
block { placement: "$name" norm: "rms_norm" }
MODEL
    "$plumb" describe "$work/$name.pbtxt" --svg "$work/pictures/$name.svg" 2> "$work/errors" && break
  done
  [ -f "$work/pictures/$name.svg" ] || grep -q "too large for a picture" "$work/errors" || {
    cat "$work/errors" >&2
    exit 1
  }
done

if [ "$check" = yes ]; then
  diff -rq "$pictures" "$work/pictures" || {
    echo "run tools/make_placement_pictures.sh, and look at what it has drawn" >&2
    exit 1
  }
  exit
fi
rm -rf "$pictures"
mkdir -p "$(dirname "$pictures")"
cp -r "$work/pictures" "$pictures"
echo "wrote $(find "$pictures" -name '*.svg' | wc -l) pictures into $pictures"
