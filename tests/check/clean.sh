#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the checker on correct norms with many seeds, and prints a table of the number of failures and the
# failing checks. Exit code 1: a check failed.
#
#   tests/check/clean.sh [--build DIR] [--seeds N] [--seconds S] [FILE...]
#
# FILE are plugins. The default is those of clean/, correct ones of mutants/, and all that ship.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
build=build/quick seeds=50 seconds=20
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) break ;;
  esac
done
if [ $# = 0 ]; then
  set -- "$build"/tests/check/clean/*.so "$build"/tests/check/mutants/{honest_cpp,joins_a_thread,adaptive_norm,graceful_norm}.so \
    "$build"/lib/plumb/norm-v1/*.so
fi
words=$(mktemp) details=$(mktemp)
trap 'rm -f "$words" "$details"' EXIT
accused=0
printf '%-20s %5s %6s  %s\n' norm seeds alarms checks
for file in "$@"; do
  alarms=0 checks=
  [ -f "$file" ] || { echo "$file: there is no such file" >&2; exit 2; }
  for ((seed = 0; seed < seeds; ++seed)); do
    "$build/bin/plumb-norm-check" "$file" --only-failed --seed "$seed" --seconds "$seconds" > "$words" 2>&1 && continue
    alarms=$((alarms + 1))
    checks="$checks $(awk -v s="$seed" '$2 == "FAIL" { printf "%s(seed %d) ", $1, s }' "$words")"
    { echo; echo "$file, seed $seed:"; cat "$words"; } >> "$details"
  done
  accused=$((accused + alarms))
  printf '%-20s %5d %6d  %s\n' "$(basename "$file" .so)" "$seeds" "$alarms" "$checks"
done
cat "$details"
echo "accused: $accused"
[ "$accused" = 0 ]
