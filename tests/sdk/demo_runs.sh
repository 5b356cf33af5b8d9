#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `plumb demo` of an installed plumb, from a directory with nothing in it: finds models, names and
# norms, and leaves the installed tree, which may be read-only, as it is. A disk that is full is an
# error and no half-written report.
#   demo_runs.sh BUILD_DIRECTORY
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
mkdir "$work/empty"
cd "$work/empty"

list() { find "$prefix" -exec stat -c '%n %s %Y' {} + | sort; }
list > "$work/before"
chmod -R a-w "$prefix"
trap 'chmod -R u+w "$prefix"; rm -rf "$work"' EXIT
plumb demo --seeds 1 --no-open > "$work/printed"
grep -qx 'report  plumb-demo/report.html' "$work/printed"
[ -s plumb-demo/report.html ]
[ "$(ls -A)" = plumb-demo ]
list | cmp "$work/before" -

# A file system of 1 MB, where one may mount: the names fit, the runs do not.
if unshare --mount true 2> /dev/null; then
  mkdir small
  status=0
  # shellcheck disable=SC2016  # sh expands it
  unshare --mount sh -c 'mount -t tmpfs -o size=1m none small || exit 77
    plumb demo --seeds 1 --no-open --out small/demo > "$1/full.out" 2> "$1/full.err"
    status=$?
    [ ! -e small/demo/report.html ] || exit 99
    exit $status' sh "$work" || status=$?
  if [ "$status" != 77 ]; then
    [ "$status" = 1 ] || { echo "a full disk: exit code $status" >&2; cat "$work/full.err" >&2; exit 1; }
    grep -q 'small/demo: the disk has .* left, and 3 runs write' "$work/full.err" || { cat "$work/full.err" >&2; exit 1; }
  fi
fi
