#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the installed pages and examples: every link and image has a target that is installed, plumb docs finds
# the pages after a move, models of the examples are complete, and without the pages the error says so.
#   docs_runs.sh BUILD_DIRECTORY SOURCE_DIRECTORY PYTHON
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
source=$(realpath "$2")
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
mv "$prefix" "$work/moved"
prefix="$work/moved"
export PATH="$prefix/bin:$PATH"
cd "$work"
readme=$(plumb docs readme --path)
doc=$(dirname "$readme")
case $doc in "$prefix"/*) ;; *) fail "the pages are in $doc" ;; esac

"$3" -B "$source/tests/docs/check_links.py" "$doc"
# A link to a file that is not installed is its text.
grep -qF '[plumb.h](runtime/include/plumb.h)' "$source/README.md"
grep -qF 'and plumb.h describe' "$readme" || fail "a link to a file that is not installed"
grep -qF '](docs/placements.md)' "$readme" || fail "a link to a page"
[ "$(find "$doc" -name '*.svg' | wc -l)" -ge 70 ] || fail "pictures are missing"
[ -z "$(find "$doc" -type f -perm /111)" ] || fail "files that are executable: $(find "$doc" -type f -perm /111)"
for page in "$source"/docs/*.md; do
  [ -s "$doc/docs/$(basename "$page")" ] || fail "$page is not installed"
done
plumb describe "$doc/examples/why_normalise/pre.pbtxt" > /dev/null

# Minimal images of Debian omit share/doc.
rm -r "$doc"
status=0
plumb docs > out 2> err || status=$?
[ "$status" = 1 ] || fail "without pages: exit code $status"
grep -q "the pages are not installed: there are none in $doc" err || fail "without pages: $(cat err)"
