#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that version 1.0 of the norm ABI is supported for ever: the template plugin of 1.0 as it was built
# then and compiled with the current header. Both load, pass every check, and train to the same losses. Names of
# constants are no part of the ABI: tests/sdk/v1_1/old_names.h maps those of 1.0 to the current ones.
#   v1_trains.sh BUILD_DIRECTORY SOURCE_DIRECTORY
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$2")
v1="$source/tests/sdk/v1"
names="$source/tests/sdk/v1_1/old_names.h"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '%s\n' anna emma hannah lena lina marie mia nora > "$work/words.txt"
tried=0
for compiler in gcc clang; do
  command -v "$compiler" > /dev/null || continue
  tried=$((tried + 1))
  flags=(-std=c11 -O2 -ffp-contract=off -Wall -Wextra -Werror -pedantic -fPIC -shared -fvisibility=hidden)
  "$compiler" "${flags[@]}" -I "$v1" "$v1/my_norm.c" -o "$work/old_both.so" -lm
  "$compiler" "${flags[@]}" -include "$names" -I "$source/plugins/abi" "$v1/my_norm.c" -o "$work/old_source.so" -lm
  # Both headers have the same sizes and offsets.
  "$compiler" -std=c11 -Werror -include "$names" -I "$source/plugins/abi" -fsyntax-only "$v1/layout.c"
  "$compiler" -std=c11 -Werror -I "$v1" -fsyntax-only "$v1/layout.c"
  for each in old_both old_source; do
    "$build/bin/plumb" plugin check --quick "$work/$each.so"
    "$build/bin/plumb" train "$v1/model.pbtxt" --data "$work/words.txt" --plugin "$work/$each.so" \
      --out "$work/$each" --set train.max_steps=10
  done
  for each in old_both old_source; do
    cut -d, -f1-5,7 "$work/$each/metrics.csv" > "$work/$each.losses"
  done
  cmp "$work/old_both.losses" "$work/old_source.losses"
  rm -r "$work/old_both" "$work/old_source"
done
[ "$tried" -gt 0 ] || { echo "FAILED: neither gcc nor clang is installed" >&2; exit 1; }
