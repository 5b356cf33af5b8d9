#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that `plumb plugin note` prints the same bytes as PLUMB_NORM_NOTE for every installed assembler, and
# that plumb finds a norm without the macro by that note. A bad id is refused and nothing is printed.
#   plugin_note_test.sh PLUMB SOURCE_DIRECTORY
set -euo pipefail
plumb=$(realpath "$1")
source=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
umask 022
id=org.example.noted

"$plumb" plugin note "$id" > note.s
sed -e 's/^PLUMB_NORM_NOTE.*//' -e "s/org.example.my_norm/$id/" "$source/plugins/template/my_norm.c" > norm.c
sed "s/org.example.my_norm/$id/" "$source/plugins/template/my_norm.c" > with_macro.c
flags=(-std=c11 -O1 -ffp-contract=off -fPIC -shared -fvisibility=hidden -I "$source/plugins/abi")
tried=0
for compiler in gcc clang; do
  command -v "$compiler" > /dev/null || continue
  tried=$((tried + 1))
  "$compiler" "${flags[@]}" norm.c note.s -o noted.so -lm
  "$compiler" "${flags[@]}" with_macro.c -o macro.so -lm
  "$plumb" plugin describe "$id" --plugin ./noted.so | grep -qF "$id"
  for file in noted macro; do objcopy -O binary --only-section=.note.plumb "$file.so" "$file.note"; done
  # Compares all bytes but 24 to 27, the ABI's minor version, which the macro takes from its header.
  cmp <(head -c 24 noted.note) <(head -c 24 macro.note)
  cmp <(tail -c +29 noted.note) <(tail -c +29 macro.note)
done
[ "$tried" -gt 0 ] || { echo "FAILED: neither gcc nor clang is installed" >&2; exit 1; }

for bad in My.Norm norm 'org.example.a"b' "org.example.$(printf 'a%.0s' {1..60})"; do
  if "$plumb" plugin note "$bad" > out 2> err; then echo "FAILED: took $bad" >&2; exit 1; fi
  [ ! -s out ] && [ -s err ]
done
