#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests examples/embed_python with an installed plumb: the module has the structs of plumb.h, finds the library by
# itself and by PLUMB_LIBRARY, passes its tests with and without numpy, and the demo learns names.
#   embed_python_runs.sh BUILD_DIRECTORY EXAMPLES PYTHON
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
python=$3
unset PLUMB_LIBRARY PLUMB_PLACEMENT_PATH
export PYTHONDONTWRITEBYTECODE=1
library=$(find "$prefix" -name libplumb.so.1)

# One copy of the module is in the library's prefix, another one elsewhere.
cp "$2/embed_python/plumb.py" "$2/embed_python/demo.py" "$prefix"
mkdir "$work/copied"
cp "$2/embed_python/plumb.py" "$work/copied"
cd "$work"
PYTHONPATH="$prefix" "$python" "$tests/embed_python_layout.py" "${CC:-cc}" -I "$prefix/include"
PYTHONPATH="$prefix" "$python" -X dev "$tests/embed_python_test.py"
# Debian's Python has Debian's numpy, even if another Python comes first.
if ! "$python" -c 'import numpy' 2> /dev/null && /usr/bin/python3 -c 'import numpy' 2> /dev/null; then
  PLUMB_LIBRARY="$library" PYTHONPATH="$work/copied" /usr/bin/python3 -X dev "$tests/embed_python_test.py"
fi
# The installed module needs only its directory in the path.
PYTHONPATH="$prefix/share/plumb/python" "$python" -c 'import plumb; print(plumb.version())'
"$python" "$prefix/demo.py" | tee demo.out
grep -q '^step 300 loss 0\.' demo.out
[ "$(grep -cE '^[a-z]+$' demo.out)" -ge 4 ]
PLUMB_LIBRARY="$library" PYTHONPATH="$work/copied" "$python" "$2/embed_python/demo.py" | cmp demo.out -

# A training that ends at step 120 and is resumed from step 100 prints the same as an uninterrupted one.
export PYTHONPATH="$work/copied" PLUMB_LIBRARY="$library"
"$python" "$2/embed_python/resume.py" whole 200 | tee whole.out
grep -q '^step 200 loss [0-9.]* held out [0-9.]*$' whole.out
"$python" "$2/embed_python/resume.py" parts 120 > parts.out
"$python" "$2/embed_python/resume.py" parts 200 | tee resumed.out
grep -q '^continues after step 100$' resumed.out
diff <(tail -n 1 whole.out) <(tail -n 1 resumed.out)
