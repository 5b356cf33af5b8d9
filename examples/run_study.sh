#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing dependencies, builds plumb, and runs the study of one folder here:
#
#   examples/run_study.sh why_normalise [OPTIONS OF plumb compare]
#   examples/run_study.sh wiring/text --data FILE     another study of a folder, its text.pbtxt
#
# The report is OUT/report.html. OUT is set by --out; its default is build/studies/FOLDER, or
# build/studies/FOLDER_NAME for another study. An interrupted study is resumed; for a finished one only
# the report is written again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
study=${1:-}
study=${study%/}
case $study in
  */*) file=$here/$study.pbtxt ;;
  *) file=$here/$study/study.pbtxt ;;
esac
if [ -z "$study" ] || [ ! -r "$file" ]; then
  echo "usage: run_study.sh FOLDER [OPTIONS OF plumb compare]" >&2
  echo "FOLDER is one of: $(cd "$here" && printf '%s ' */study.pbtxt | sed 's|/study.pbtxt||g')" >&2
  exit 2
fi
shift
out=(--out "$root/build/studies/${study//\//_}")
for word in "$@"; do
  case $word in --out | --out=*) out=() ;; esac
done

{
  "$root/tools/install_dependencies.sh" run
  "$root/tools/build.sh" run
} >&2
exec "$root/build/quick/bin/plumb" compare "$file" "${out[@]}" "$@"
