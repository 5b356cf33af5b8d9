#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests `plumb docs`: its list, names and errors, the pager on a terminal, and that every page that a message,
# a help text or the schema names exists.
#   docs_test.sh PLUMB SOURCE_DIRECTORY
set -euo pipefail
here=$(realpath "$(dirname "$0")")
plumb=$(realpath "$1") source=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export NO_COLOR=1
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

"$plumb" docs > list
[ -z "$(awk 'length > 80' list)" ] || fail "the list has over 80 columns"
grep -oE '^[a-z][a-z_/-]+  ' list | tr -d ' ' > names
[ "$(wc -l < names)" -ge 20 ] || fail "only these pages: $(cat names)"
while read -r name; do
  path=$("$plumb" docs "$name" --path)
  [ -s "$path" ] || fail "$name: no file $path"
  "$plumb" docs "$name" | cmp - "$path" || fail "$name is not printed as it is"
  grep -qE "^$name  +[^ ]" list || fail "$name has no sentence in the list"
done < names
[ "$(find "$(dirname "$("$plumb" docs readme --path)")" -name '*.md' | wc -l)" = "$(wc -l < names)" ] || fail "pages that are not listed"
grep -qx placements names
"$plumb" docs placements | cmp - <("$plumb" docs docs/placements.md) || fail "a path is no name"

# refused EXPECTED ARGUMENTS...
refused() {
  local status=0
  "$plumb" docs "${@:2}" > out 2> err || status=$?
  [ "$status" = 2 ] || fail "plumb docs ${*:2}: exit code $status"
  grep -qF -- "$1" err || fail "plumb docs ${*:2}: $(cat err)"
}
refused 'there is no page "first-nrm"; did you mean "first-norm"?' first-nrm
refused 'plumb docs lists all pages' ../../etc/passwd
refused 'needs a page' --path
refused 'no page has "wobblegrad"' --search wobblegrad
refused 'PAGE excludes --search' faq --search norm

# The page about the word is the first one, its headings before other lines, and each line is the page's.
"$plumb" docs --search Hyper-Connections > found
[ -z "$(awk 'NR > 24 || length > 80' found)" ] || fail "more than a screen: $(cat found)"
page=$(head -n 1 found | cut -d ' ' -f 1)
grep -qx "$page" names || fail "no page is first: $(cat found)"
awk 'NR > 1 && !/^  / { exit } NR > 1 { print $1 }' found > numbers
[ -s numbers ] || fail "no lines: $(cat found)"
while read -r number; do
  "$plumb" docs "$page" | sed -n "${number}p" | grep -qi hyper-connections || fail "$page:$number lacks the word"
done < numbers
"$plumb" docs --search 'statements' | grep -A 1 '^placements  ' | grep -q '  Statements$' || fail "headings are not first"

# on_terminal PAGER prints a page as a terminal gets it.
on_terminal() { "$here/on_terminal.py" "PAGER='$1' '$plumb' docs faq"; }
"$plumb" docs faq > printed
[ "$(on_terminal 'sed s/^/paged:/' | grep -c '^paged:')" = "$(wc -l < printed)" ] || fail "PAGER is not used"
on_terminal '' | cmp - printed || fail "an empty PAGER shows the page as it is"
on_terminal /not/there 2>&1 | tail -n +2 | cmp - printed || fail "a pager that is missing"
on_terminal 'head -n 1' | cmp - <(head -n 1 printed) || fail "a pager that ends early"

# Users have no docs/ directory: texts name pages by their command.
cd "$source"
grep -rnE '"[^"]*docs/[a-z-]+\.md' --include=*.cc --include=*.h cli runtime plugins | grep -v '//.*docs/' && fail "these name files of the source tree"
grep -rnE '\bdocs/[a-z-]+\.md' proto cli/demo && fail "these name files of the source tree"
{ grep -rhoE 'plumb docs [a-z]+(-[a-z]+)*' --include=*.cc --include=*.proto --include=*.md cli runtime plugins proto || true; } |
  cut -d ' ' -f 3 | grep -vx lists | sort -u > "$work/named"  # "plumb docs lists all pages"
[ "$(wc -l < "$work/named")" -ge 7 ] || fail "the texts name only: $(cat "$work/named")"
unknown=$(grep -vxFf "$work/names" "$work/named" || true)
[ -z "$unknown" ] || fail "texts name pages that there are not: $unknown"
