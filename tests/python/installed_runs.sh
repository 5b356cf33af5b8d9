#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Python package of an installed plumb: it finds the library of its prefix, a copy elsewhere that of
# PLUMB_LIBRARY, the package passes its tests, and the examples learn names.
#   installed_runs.sh BUILD_DIRECTORY EXAMPLES PYTHON
. "$(dirname "${BASH_SOURCE[0]}")/../sdk/install.sh" "$1"
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
python=$3
unset PLUMB_LIBRARY PLUMB_PLACEMENT_PATH
export PYTHONDONTWRITEBYTECODE=1
library=$(find "$prefix" -name 'libplumb.so.0.*' -type l)
installed="$prefix/share/plumb/python"
mkdir "$work/copied"
cp -r "$installed/plumb_runtime" "$work/copied"
cd "$work"

[ -f "$installed/plumb_runtime/py.typed" ]
# The page keeps its links to examples, because their files are installed, and so are the files that its snippets read.
page=$("$prefix/bin/plumb" docs python --path)
examples=$(dirname "$("$prefix/bin/plumb" docs examples --path)")
diff <(grep -o '](\.\./examples/[^)]*)' "$2/../docs/python.md") <(grep -o '](\.\./examples/[^)]*)' "$page")
for file in data/names.txt benchmark/results/base.json notebooks/placement_in_ten_minutes.ipynb; do [ -f "$examples/$file" ]; done
PYTHONPATH="$installed" "$python" -X dev "$tests/package_test.py"
PYTHONPATH="$installed" "$python" -m plumb_runtime --version | grep -q '^plumb'
PYTHONPATH="$installed" "$python" "$2/embed_python/demo.py" | tee demo.out
grep -q '^step 300 loss 0\.' demo.out
[ "$(grep -cE '^[a-z]+$' demo.out)" -ge 4 ]
export PYTHONPATH="$work/copied" PLUMB_LIBRARY="$library"
"$python" "$2/embed_python/demo.py" | cmp demo.out -
# The norm in numpy learns, if there is a numpy.
if "$tests/run.sh" "$python" -c 'import numpy' 2> /dev/null; then
  "$tests/run.sh" "$python" "$2/embed_python/norm.py" | tee norm.out
  grep -q '^step 40 loss 1\.' norm.out
fi

"$python" "$2/embed_python/compare.py" "$2/data/names.txt" study 50 | tee compare.out
grep -qE '^(pre|peri) +at learning_rate=0\.0' compare.out
[ "$(wc -l < study/runs.csv)" = 17 ]

# The notebooks need numpy, and one of them a C compiler and the headers of the prefix.
if "$tests/run.sh" "$python" -c 'import numpy' 2> /dev/null; then
  PLUMB="$prefix/bin/plumb" "$tests/run.sh" "$python" "$tests/notebooks_test.py" "$2/notebooks" | tee notebooks.out
  grep -qE '^[0-9]+ checks: [0-9]+ passed, 2 skipped$' notebooks.out
else
  echo "numpy is not installed: the notebooks are not run" >&2
fi

# A training that ends at step 120 and is resumed from step 100 prints the same as an uninterrupted one.
"$python" "$2/embed_python/resume.py" whole 200 | tee whole.out
grep -q '^step 200 loss [0-9.]* held out [0-9.]*$' whole.out
"$python" "$2/embed_python/resume.py" parts 120 > parts.out
"$python" "$2/embed_python/resume.py" parts 200 | tee resumed.out
grep -q '^continues after step 100$' resumed.out
diff <(tail -n 1 whole.out) <(tail -n 1 resumed.out)
