#!/usr/bin/env bash
# examples/embed_python against an installed plumb: the module finds the library by itself and by
# PLUMB_LIBRARY, passes its tests with and without numpy, and the demo learns names.
#   embed_python_runs.sh BUILD_DIRECTORY EXAMPLES PYTHON
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
python=$3
unset PLUMB_LIBRARY PLUMB_PLACEMENT_PATH
export PYTHONDONTWRITEBYTECODE=1
library=$(find "$prefix" -name libplumb.so.1)

# A module that somebody put beside the library's prefix, and one elsewhere.
cp "$2/embed_python/plumb.py" "$2/embed_python/demo.py" "$prefix"
mkdir "$work/copied"
cp "$2/embed_python/plumb.py" "$work/copied"
cd "$work"
PYTHONPATH="$prefix" "$python" -X dev "$tests/embed_python_test.py"
# Debian's Python has Debian's numpy, where another is in front of it too.
if ! "$python" -c 'import numpy' 2> /dev/null && /usr/bin/python3 -c 'import numpy' 2> /dev/null; then
  PLUMB_LIBRARY="$library" PYTHONPATH="$work/copied" /usr/bin/python3 -X dev "$tests/embed_python_test.py"
fi
# The installed one, by nothing but its directory.
PYTHONPATH="$prefix/share/plumb/python" "$python" -c 'import plumb; print(plumb.version())'
"$python" "$prefix/demo.py" | tee demo.out
grep -q '^step 300 loss 0\.' demo.out
[ "$(grep -cE '^[a-z]+$' demo.out)" -ge 4 ]
PLUMB_LIBRARY="$library" PYTHONPATH="$work/copied" "$python" "$2/embed_python/demo.py" | cmp demo.out -
