#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collects the reports of all studies here in one folder with an index.html, which can be opened from
# disk or put on a server:
#
#   examples/make_gallery.sh [--quick] [--studies DIR] [OUT]
#
# OUT defaults to build/gallery. The studies are trained in build/studies, like run_study.sh does, or in
# the DIR of --studies: finished runs are not trained again, and interrupted ones are resumed. --quick
# trains only 20 steps of each, in build/studies-quick, to see the pages without results. PLUMB is the
# plumb program to use; without it, one is built.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
template=$here/studies.html

say() { printf 'make_gallery: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
usage() {
  say "$1"
  echo "usage: make_gallery.sh [--quick] [--studies DIR] [OUT]" >&2
  exit 2
}
escaped() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g'; }

quick=false out='' studies=''
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=true ;;
    --studies)
      [ $# -gt 1 ] || usage "--studies: which directory?"
      studies=$2
      shift
      ;;
    -*) usage "unknown option $1" ;;
    *)
      [ -z "$out" ] || usage "one OUT, not \"$out\" and \"$1\""
      out=$1
      ;;
  esac
  shift
done
if $quick; then
  default_studies=$root/build/studies-quick
  few=(--seeds 2 --samples 2 --set train.max_steps=20)
else
  default_studies=$root/build/studies
  few=()
fi
out=$(realpath -m -- "${out:-$root/build/gallery}")
studies=$(realpath -m -- "${studies:-$default_studies}")

[ ! -e "$out" ] || [ -d "$out" ] || fail "$out: is a file; OUT is a directory"
if [ -e "$out/index.html" ] && ! grep -q 'content="examples/make_gallery.sh"' "$out/index.html"; then
  fail "$out: has an index.html that is no gallery's; name another OUT"
fi
mkdir -p "$out" || fail "$out: cannot be made"
[ -w "$out" ] || fail "$out: cannot be written to"

if [ -z "${PLUMB:-}" ]; then
  {
    "$root/tools/install_dependencies.sh" run
    "$root/tools/build.sh" run
  } >&2
  PLUMB=$root/build/quick/bin/plumb
fi
PLUMB=$(command -v -- "$PLUMB") || fail "PLUMB names no program"
PLUMB=$(realpath -- "$PLUMB")

# Print the heading of a study's README.md, and the first comment of its study.pbtxt.
title_of() { sed -n 's/^# //p; /^# /q' "$1/README.md" | escaped; }
sentence_of() { sed -n '/^#/!q; s/^# *//p' "$1" | paste -sd ' ' | escaped; }

page=$(< "$template")
head=${page%%'<!-- card -->'*}
tail=${page##*'<!-- end of card -->'}
card=${page#*'<!-- card -->'}
card=${card%%'<!-- end of card -->'*}

# In the top directory of the repository, so that reports show commands to run there.
cd "$root"
files=(examples/*/study.pbtxt)
cards=''
for i in "${!files[@]}"; do
  file=${files[$i]}
  name=$(basename "$(dirname "$file")")
  say "$((i + 1)) of ${#files[@]}: $file"
  status=0
  directory=$studies/$name
  directory=${directory#"$root"/}
  "$PLUMB" compare "$file" --out "$directory" "${few[@]}" > /dev/null || status=$?
  [ "$status" != 130 ] || exit 130
  [ "$status" = 0 ] || fail "$file: plumb compare failed, and there is no index without it; see above"
  cp -- "$directory/report.html" "$out/.$name.html"
  mv -- "$out/.$name.html" "$out/$name.html"

  runs=$(find "$directory/runs" -mindepth 1 -maxdepth 1 -type d | wc -l)
  facts="$runs runs"
  command="examples/run_study.sh $name"
  if $quick; then
    facts="$facts of 20 steps: a quick look, no result"
    command="$command ${few[*]}"
  fi
  # Replacements are quoted, because an unquoted & in them means the matched text.
  one=${card//'{{page}}'/"$name.html"}
  one=${one//'{{title}}'/"$(title_of "examples/$name")"}
  one=${one//'{{sentence}}'/"$(sentence_of "$file")"}
  one=${one//'{{facts}}'/"$facts"}
  cards+=${one//'{{command}}'/"$command"}
done

printf '%s\n' "$head$cards$tail" > "$out/.index.html"
mv -- "$out/.index.html" "$out/index.html"
say "open $out/index.html"
