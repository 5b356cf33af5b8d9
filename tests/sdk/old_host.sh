#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plugins of norm ABI 1.1 in a host of 1.0: builds the last commit whose header is 1.0 in a temporary
# clone, and gives it the plugins of tests/sdk/v1_1, compiled with the header of 1.1. The one that needs 1.1
# is refused with both version numbers. The other one runs without the new features, and its model has fewer
# parameters. This test is not part of ctest, because it builds another tree.
#   old_host.sh BUILD_DIRECTORY [SOURCE_DIRECTORY [OLD_BUILD_DIRECTORY]]    the last: an existing build of that commit
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "${2:-$(dirname "$0")/../..}")
here="$source/tests/sdk/v1_1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $1" >&2; exit 1; }

first=$(git -C "$source" log --reverse --format=%H -S'PLUMB_NORM_ABI_MINOR 1' -- plugins/abi/plumb/norm_plugin.h | head -1)
[ -n "$first" ] || fail "the history does not reach back to norm ABI 1.0"
old_commit=$(git -C "$source" rev-parse "$first^")
echo "the last host of 1.0: $(git -C "$source" log -1 --format='%h %s' "$old_commit")"
if [ $# -ge 3 ]; then
  old=$(realpath "$3")
else
  git clone --quiet --shared --no-checkout "$source" "$work/old"
  git -C "$work/old" checkout --quiet "$old_commit"
  (cd "$work/old" && cmake --preset release -DPLUMB_BUILD_TESTS=OFF -DPLUMB_BUILD_BENCH=OFF > "$work/log" &&
    cmake --build build/release --target plumb > "$work/log") || { tail -20 "$work/log"; fail "the old host does not build"; }
  old="$work/old/build/release"
fi
for norm in adaptive graceful; do
  ${CC:-cc} -std=c11 -O2 -ffp-contract=off -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden \
    -I "$here" "$here/${norm}_norm.c" -o "$work/$norm.so" -lm
done
printf '%s\n' anna emma hannah lena lina marie mia nora > "$work/words.txt"

echo "-- needs 1.1"
if "$old/bin/plumb" train "$here/adaptive.pbtxt" --data "$work/words.txt" --plugin "$work/adaptive.so" \
  --out "$work/refused" --set train.max_steps=2 > "$work/log" 2>&1; then
  fail "a host of 1.0 takes a norm that needs 1.1"
fi
cat "$work/log"
grep -q 'needs norm ABI 1.1, and this plumb has 1.0' "$work/log" || fail "refused for another reason"

echo "-- makes use of 1.1"
for host in "$old" "$build"; do
  "$host/bin/plumb" train "$here/graceful.pbtxt" --data "$work/words.txt" --plugin "$work/graceful.so" \
    --out "$work/run" --set train.max_steps=60 > "$work/log" 2>&1 || { cat "$work/log"; fail "$host does not run it"; }
  python3 - "$work/run" << 'END' > "$work/shape" || { cat "$work/shape"; fail "it does not learn"; }
import csv, json, pathlib, struct, sys
run = pathlib.Path(sys.argv[1])
# A host of 1.0 writes metrics.jsonl.
files = [run / "metrics.csv", run / "metrics.jsonl"]
rows = csv.DictReader(open(files[0])) if files[0].exists() else map(json.loads, open(files[1]))
losses = [float(row["loss"]) for row in rows]
for path in sorted(run.rglob("*.safetensors")):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    for name, tensor in header.items():
        if name.endswith("layers.0.attention.q_norm.gain"):
            print(f"gain of queries {tensor['shape']}, loss from {losses[0]:.3f} to {losses[-1]:.3f}")
            sys.exit(0 if losses[-1] < 0.7 * losses[0] else 1)
sys.exit("no gain")
END
  echo "$("$host/bin/plumb" --version | head -1): $(cat "$work/shape")"
  case "$host" in
    "$old") grep -q 'queries \[16\]' "$work/shape" || fail "heads in a host of 1.0" ;;
    *) grep -q 'queries \[2, 16\]' "$work/shape" || fail "no heads in today's host" ;;
  esac
  rm -r "$work/run"
done
