#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests examples/make_gallery.sh: every study has a card, every link has a target, nothing is loaded from
# other sites, a second run trains nothing, and files that are not part of a gallery are kept.
#
#   tests/cli/gallery_test.sh SOURCE_DIRECTORY PLUMB
set -euo pipefail
source=$1
export PLUMB=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
# Writes the messages into $work/log. Returns the exit code of make_gallery.sh.
make_gallery() { "$source/examples/make_gallery.sh" --studies "$work/studies" "$@" 2> "$work/log"; }

make_gallery --quick "$work/gallery" || { cat "$work/log" >&2; fail "no gallery"; }
index=$work/gallery/index.html
for study in "$source"/examples/*/study.pbtxt; do
  name=$(basename "$(dirname "$study")")
  grep -q "href=\"$name.html\"" "$index" || fail "no link to $name"
  grep -q "examples/run_study.sh $name" "$index" || fail "no command for $name"
done
links=$(grep -oE '(href|src)="[^"]*"' "$index" | sed -E 's/^[a-z]+="(.*)"$/\1/')
[ -n "$links" ] || fail "no links"
while read -r link; do
  [ -s "$work/gallery/$link" ] || fail "$link leads nowhere"
done <<< "$links"
! grep -qiE 'https?:|url\(|@import|<script|\{\{' "$index" || fail "the index is not whole in itself"
[ "$(grep -c '<li class="card">' "$index")" = "$(find "$source/examples" -maxdepth 2 -name study.pbtxt | wc -l)" ] ||
  fail "not one card a study"

cp "$index" "$work/before"
make_gallery --quick "$work/gallery" || fail "the second run"
! grep -q ', seed ' "$work/log" || fail "it trained again"
cmp -s "$index" "$work/before" || fail "the second index is another"

mkdir "$work/site"
echo mine > "$work/site/index.html"
! make_gallery --quick "$work/site" || fail "it wrote over an index.html"
[ "$(cat "$work/site/index.html")" = mine ] || fail "it changed an index.html"
grep -q 'no gallery' "$work/log" || fail "no reason: $(cat "$work/log")"
! make_gallery --quick "$work/site/index.html" || fail "it took a file for a directory"
! make_gallery --quik || fail "it took an unknown option"
grep -q 'unknown option --quik' "$work/log" || fail "no reason: $(cat "$work/log")"
# The options differ from those of the existing studies, so there is no index.
! make_gallery "$work/full" || fail "it mixed whole and quick studies"
[ ! -e "$work/full/index.html" ] || fail "an index of nothing"
