#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that every command has a manual page with every option of its help, that groff and mandoc find no
# errors in it, and that generating the pages again gives the same bytes.
#   man_pages_test.sh PLUMB MAN_DIRECTORY
set -euo pipefail
plumb=$1 pages=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NO_COLOR=1
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

"$plumb" help --man-pages "$work"
diff -r "$work" "$pages" || fail "pages of the build are not those of the program"

# Prints the commands of a help text, which are the words before the descriptions.
commands() { "$plumb" "$@" --help | awk '/^Subcommands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ { print $1 }'; }
check() {
  local page="$pages/plumb" option said
  page+=$(printf -- '-%s' "$@" | sed 's/^-$//').1
  [ -s "$page" ] || fail "no page $page"
  seen=$((seen + 1))
  # The page is read as a whole, because grep -q on a pipe would end its writer with SIGPIPE.
  local text
  text=$(sed 's/\\-/-/g' "$page")
  while read -r option; do
    grep -qF -e "$option" <<< "$text" || fail "$page does not mention $option"
  done < <("$plumb" "$@" --help | grep -oE '^  (-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+')
  head -n 3 "$page" | tail -n 1 | sed 's/\\-/-/g' | grep -q "^$(basename "$page" .1) - " || fail "$page has no name"
  grep -qE '^\.TH [A-Z\-]+ 1 "" "plumb [0-9.]+" "User Commands"$' "$page" || fail "the title of $page"
  if command -v groff > /dev/null; then
    said=$(groff -man -ww -z -Tutf8 "$page" 2>&1)
    [ -z "$said" ] || fail "groff: $said"
    tools=$((tools + 1))
  fi
  if command -v mandoc > /dev/null; then
    # Pages have no date on purpose: they change only with the version.
    said=$(mandoc -Tlint -W warning "$page" | grep -v 'missing date' || true)
    [ -z "$said" ] || fail "mandoc: $said"
    tools=$((tools + 1))
  fi
}

seen=0 tools=0
check
for command in $(commands); do
  check "$command"
  for inner in $(commands "$command"); do check "$command" "$inner"; done
done
[ "$seen" -ge 17 ] || fail "only $seen commands were found"
[ "$seen" = "$(find "$pages" -name '*.1' | wc -l)" ] || fail "pages of commands that there are not"
[ "$tools" -gt 0 ] || echo "neither groff nor mandoc is installed: pages were not read by either" >&2
[ "$("$plumb" help --man train)" = "$(cat "$pages/plumb-train.1")" ] || fail "plumb help --man train is another page"
