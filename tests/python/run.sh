#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test by the given Python, or by Debian's if only that has numpy.
#   run.sh PYTHON TEST ARGUMENTS...
set -euo pipefail
python=$1
shift
unset PLUMB_PLUGIN_PATH PLUMB_PLACEMENT_PATH
if ! "$python" -c 'import numpy' 2> /dev/null && /usr/bin/python3 -c 'import numpy' 2> /dev/null; then
  python=/usr/bin/python3
fi
exec "$python" -B -X dev "$@"
