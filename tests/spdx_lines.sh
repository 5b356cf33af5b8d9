#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that every source file names its licence in its first lines, except those that plumb copies for its
# users to change (plugins/template, cli/demo, the Python code that plumb export writes) or that others wrote
# (runtime/report/js/uplot). Prints the others.
#
#   tests/spdx_lines.sh [SOURCE_DIRECTORY]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

missing=$(find CMakeLists.txt runtime plugins proto cli tests bench examples cmake tools -type f \
  \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cc' -o -name '*.inc' -o -name '*.proto' -o -name '*.rs' \
  -o -name '*.js' -o -name '*.mjs' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt \) \
  -not -path 'plugins/template/*' -not -path 'cli/demo/*' -not -path 'plugins/pytorch/*' \
  -not -path 'runtime/pytorch/*.py' -not -path 'examples/pytorch/*' -not -path '*/uplot/*' -not -path '*/node_modules/*' \
  -exec awk 'FNR <= 3 && /SPDX-License-Identifier: / { found = 1 } END { exit found }' {} \; -print | sort)
if [ -n "$missing" ]; then
  printf 'these have no SPDX line:\n%s\n' "$missing" >&2
  exit 1
fi
