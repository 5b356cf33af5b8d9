#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the layout of the help of every command: at most 80 columns where stdout is no terminal, the terminal's
# width otherwise, and the same whole words at any width.
#   help_text_test.sh PLUMB
set -euo pipefail
here=$(realpath "$(dirname "$0")")
plumb=$(realpath "$1")
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

commands() { "$plumb" "$@" --help | awk '/^Subcommands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ { print $1 }'; }
# on_terminal COLUMNS COMMAND... prints the help as a terminal of that width gets it.
on_terminal() { "$here/on_terminal.py" "stty cols $1; '$plumb' ${*:2} --help"; }
words() { tr -s '[:space:]' '\n' <<< "$1"; }

check() {
  local text wide narrow
  text=$("$plumb" "$@" --help)
  [ -z "$(awk 'length > 80' <<< "$text")" ] || fail "plumb $* --help: over 80 columns: $(awk 'length > 80' <<< "$text")"
  seen=$((seen + 1))
  # The checker of plugins has a help of its own, with fixed line breaks.
  [ "$*" != "plugin check" ] || return 0
  wide=$(on_terminal 400 "$@") narrow=$(on_terminal 50 "$@")
  [ "$(words "$wide")" = "$(words "$text")" ] || fail "plumb $* --help: 80 columns break a word"
  [ "$(words "$narrow")" = "$(words "$text")" ] || fail "plumb $* --help: 50 columns break a word"
  [ "$(wc -l <<< "$wide")" -le "$(wc -l <<< "$text")" ] || fail "plumb $* --help: longer on a wide terminal"
  # Descriptions are indented; examples, which are not filled, less. A long word has a line of its own.
  [ -z "$(awk 'length > 50 && NF > 1 && /^          /' <<< "$narrow")" ] || fail "plumb $* --help: over 50 columns"
}

seen=0
check
for command in $(commands); do
  check "$command"
  for inner in $(commands "$command"); do check "$command" "$inner"; done
done
[ "$seen" -ge 30 ] || fail "only $seen commands were found"
[ "$(on_terminal 400 train | wc -l)" -lt "$("$plumb" train --help | wc -l)" ] || fail "the terminal's width is not used"
