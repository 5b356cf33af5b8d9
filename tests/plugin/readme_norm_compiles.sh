#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the norm in plugins/README.md compiles with the command of the page, without warnings. The
# conformance test uses the result.
# Usage: [CC=compiler] readme_norm_compiles.sh PLUGINS_DIRECTORY OUTPUT.so
set -eu
plugins="$1"
output="$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$plugins/README.md" > "$work/l2_norm.c"
[ -s "$work/l2_norm.c" ] || { echo "FAILED: the page shows no norm" >&2; exit 1; }
line=$(grep -o '^    cc .*' "$plugins/README.md")
cd "$work"
# The command is the page's, with this tree's path of the header and stricter warnings.
command=$(echo "$line" | sed -e "s|plugins/abi|'$plugins/abi'|" -e "s|^ *cc |'${CC:-cc}' |")
sh -c "$command -Wall -Wextra -Wshadow -pedantic -Werror"
mkdir -p "$(dirname "$output")"
cp l2_norm.so "$output"
