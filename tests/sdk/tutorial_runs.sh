#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs docs/first-norm.md with an installed plumb: writes the files of the page in their order, and runs its
# commands. The learned mixtures must have changed.
#   tutorial_runs.sh BUILD_DIRECTORY TUTORIAL.md
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
page=$(realpath "$2")

awk '
  /^<!-- file: .* -->$/ { name = $3; next }
  /^```/ && in_block { if (in_block == "file") print "PLUMB_END_OF_FILE"; in_block = ""; next }
  /^```sh$/ { in_block = "sh"; next }
  /^```/ {
    if (name == "") { print "a block that is neither a command nor a file: line " NR > "/dev/stderr"; exit 1 }
    print "cat > " name " << '"'"'PLUMB_END_OF_FILE'"'"'"
    in_block = "file"; name = ""; next
  }
  in_block { print }
' "$page" > "$work/tutorial.sh"
[ "$(grep -c '^make\|^plumb\|^cc' "$work/tutorial.sh")" -ge 8 ] || { echo "FAILED: the page shows no commands" >&2; exit 1; }

cd "$work"
PLUMB="$prefix" bash -euxo pipefail "$work/tutorial.sh" < /dev/null

cd "$work/mix_norm"
plumb plugin list | grep -q "^org.example.mix_norm *$prefix"
plumb plugin check ./wrong.so --only-failed --json > wrong.json || true
grep -q '"N2"' wrong.json
# The mixture starts at 0.5 everywhere, so the last checkpoint must contain other values.
checkpoint="mix/$(cat mix/latest)"
[ -d "$checkpoint" ] || checkpoint="mix/checkpoints/$(cat mix/latest)"
grep -aq 'norm.mix' "$checkpoint/model.safetensors"
