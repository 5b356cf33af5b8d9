#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plugins that use the additions of norm ABI 1.1, compiled with the frozen header of 1.1, in a model that
# trains. One requires a host of 1.1, the other only uses it. Both pass the checker and train to the same losses with any number of threads,
# and the models can be sampled.
#   trains.sh BUILD_DIRECTORY SOURCE_DIRECTORY
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$2")
here="$source/tests/sdk/v1_1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $1" >&2; exit 1; }

printf '%s\n' anna emma hannah lena lina marie mia nora > "$work/words.txt"
losses() { cut -d, -f1-5,7 "$1/metrics.csv"; }
tried=0
for compiler in gcc clang; do
  command -v "$compiler" > /dev/null || continue
  tried=$((tried + 1))
  # The frozen and the current header have the same sizes and offsets.
  $compiler -std=c11 -Werror -I "$here" -fsyntax-only "$here/layout.c"
  $compiler -std=c11 -Werror -include "$here/old_names.h" -I "$source/plugins/abi" -fsyntax-only "$here/layout.c"
  for norm in adaptive graceful; do
    $compiler -std=c11 -O2 -ffp-contract=off -Wall -Wextra -Werror -pedantic -fPIC -shared -fvisibility=hidden \
      -I "$here" "$here/${norm}_norm.c" -o "$work/$norm.so" -lm
    "$build/bin/plumb" plugin check --quick "$work/$norm.so"
    for run in plain "threads --threads 3"; do
      # shellcheck disable=SC2086
      set -- $run
      name=$1
      shift
      "$build/bin/plumb" train "$here/$norm.pbtxt" --data "$work/words.txt" --plugin "$work/$norm.so" \
        --out "$work/$name" --set train.max_steps=60 "$@" > /dev/null
      losses "$work/$name" > "$work/$name.losses"
    done
    cmp "$work/plain.losses" "$work/threads.losses"
    python3 - "$work/plain/metrics.csv" << 'END' || fail "$norm does not learn"
import csv, sys
losses = [float(row["loss"]) for row in csv.DictReader(open(sys.argv[1]))]
print(f"loss from {losses[0]:.3f} to {losses[-1]:.3f}")
sys.exit(0 if losses[-1] < 0.7 * losses[0] else 1)
END
    "$build/bin/plumb" sample "$work/plain" --plugin "$work/$norm.so" > "$work/sampled"
    [ -s "$work/sampled" ] || fail "$norm samples nothing"
    rm -r "$work/plain" "$work/threads"
  done
done
[ "$tried" -gt 0 ] || fail "neither gcc nor clang is installed"
# A norm of one input gets two, and the error names the place in the formula.
sed 's/plugin: "org.example.adaptive_norm"/plugin: "rms_norm"/' "$here/adaptive.pbtxt" > "$work/one.pbtxt"
if "$build/bin/plumb" describe "$work/one.pbtxt" --set model.vocab_size=20 2> "$work/error"; then fail "two inputs for rms_norm"; fi
cat "$work/error"
grep -q 'the norm "mine" has one input, norm(x)' "$work/error" || fail "the error says something else"
