#!/usr/bin/env bash
# Gives norms that are right to the checker with many seeds: no check may fail.
#
#   tests/check/clean.sh [--build DIR] [--seeds N] [--seconds S] [FILE...]
#
# FILE: plugins; default: the clean ones of sabotage/, in C and C++, and all that ship.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/release seeds=50 seconds=20
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) break ;;
  esac
done
if [ $# = 0 ]; then
  set -- "$build"/tests/check/sabotage/plugins/honest*.so "$build"/lib/plumb/norm-v1/*.so
fi
accused=0
for file in "$@"; do
  for ((seed = 0; seed < seeds; ++seed)); do
    "$build/bin/plumb-norm-check" "$file" --only-failed --seed "$seed" --seconds "$seconds" > /tmp/clean.$$ && continue
    accused=$((accused + 1))
    echo "$file, seed $seed:"
    cat /tmp/clean.$$
  done
done
rm -f /tmp/clean.$$
echo "accused: $accused"
[ "$accused" = 0 ]
