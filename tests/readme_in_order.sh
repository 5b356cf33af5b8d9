#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all commands of the README in their order, as they are printed there, in a fresh clone of the commit
# and with an empty home directory. Fails if one of them fails. tests/run.sh builds and runs one test only.
#
#   tests/readme_in_order.sh           in a clone, which is removed
#   tests/readme_in_order.sh --here    in this tree: tools/test_in_chroot.sh, whose tree is fresh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

[ $# = 0 ] || [ "$*" = --here ] || { echo "usage: tests/readme_in_order.sh [--here]" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 0 ]; then
  git clone --quiet "$root" "$work/plumb"
  root=$work/plumb
fi
cd "$root"

# An `sh` block is commands; in a `console` block they begin with "$ ". There may be no Python yet.
# shellcheck disable=SC2016 # a pattern
sed -n -e '/^```sh$/,/^```$/{/^```/d;p}' -e '/^```console$/,/^```$/s/^[$] //p' README.md > "$work/commands"
grep -q '^cmake --install' "$work/commands" || { echo "README.md installs nothing" >&2; exit 1; }
sed -i "s/^tests\/run\.sh/PLUMB_TEST_TARGETS='readme_snippet_test runtime\/all' & -R '^readme_snippet_test\$'/" "$work/commands"
mkdir "$work/home"
HOME=$work/home bash -veuo pipefail "$work/commands" < /dev/null  # -v prints each command
