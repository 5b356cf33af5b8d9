#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests `plumb demo` of an installed plumb, in an empty directory: it finds models, names and norms, and does
# not change the installed tree, which may be read-only. A full disk is an error and leaves no incomplete
# report.
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

# If mounting is possible, the demo runs on a file system of 1 MB, which has space for the names but not for
# the runs.
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
