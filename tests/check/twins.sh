#!/usr/bin/env bash
# Gives every twin (sabotage/twins.c, life_twins.c, cross_twins.c, authors_*.c) to the checker with
# several seeds, and prints a table: which check finds it first, with
# which seeds. Exit code 1: one was not
# found.
#
#   tests/check/twins.sh [--build DIR] [--seeds N] [--seconds S] [TWIN...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/quick seeds=5 seconds=20
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) break ;;
  esac
done
checker=$build/bin/plumb-norm-check
if [ $# = 0 ]; then
  mapfile -t numbers < <(printf '%s\n' "$build"/tests/check/sabotage/twins/twin_*.so | grep -o '[0-9]*\.so' | sort -n)
  set -- "${numbers[@]%.so}"
fi
missed=0
for number in "$@"; do
  line=
  for ((seed = 0; seed < seeds; ++seed)); do
    found=$("$checker" "$build/tests/check/sabotage/twins/twin_$number.so" \
      --only-failed --fail-fast --seed "$seed" --seconds "$seconds" | awk '$2 == "FAIL" { printf "%s%s", s, $1; s = "," }')
    [ -n "$found" ] || missed=$((missed + 1))
    line="$line ${found:-MISSED}"
  done
  printf 'twin %3s %s\n' "$number" "$line"
done
echo "missed: $missed"
[ "$missed" = 0 ]
