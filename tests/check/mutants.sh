#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the checker with all checks on every mutant of tests/check/mutants.txt, and prints a table of the check
# that finds it first for each seed. Exit code 1: a mutant that should be found was not.
#
#   tests/check/mutants.sh [--build DIR] [--seeds N] [--seconds S] [NAME...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
build=build/quick seeds=5 seconds=20
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) break ;;
  esac
done
if [ $# = 0 ]; then
  mapfile -t names < <(awk '!/^#/ && ($4 == "fail" || $4 == "fail*") { print $1 }' tests/check/mutants.txt)
  set -- "${names[@]}"
fi
missed=0
for name in "$@"; do
  line=
  for ((seed = 0; seed < seeds; ++seed)); do
    found=$("$build/bin/plumb-norm-check" "$build/tests/check/mutants/plugins/$name.so" --timeout 3 \
      --only-failed --fail-fast --seed "$seed" --seconds "$seconds" | awk '$2 == "FAIL" { printf "%s%s", s, $1; s = "," }')
    [ -n "$found" ] || missed=$((missed + 1))
    line="$line ${found:-MISSED}"
  done
  printf '%-32s %s\n' "$name" "$line"
done
echo "missed: $missed"
[ "$missed" = 0 ]
