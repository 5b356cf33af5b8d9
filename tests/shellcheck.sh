#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs shellcheck on every shell script of the tree. Exits with 77 if it is not installed.
#
#   tests/shellcheck.sh [SOURCE_DIRECTORY]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
command -v shellcheck > /dev/null || { echo "skipped: shellcheck is not installed"; exit 77; }

mapfile -d '' scripts < <(find .ci bench cli cmake examples plugins proto runtime tests tools -type f -not -path '*/node_modules/*' \
  \( -name '*.sh' -o -path '.ci/*' \) -print0 | sort -z)
[ ${#scripts[@]} -ge 60 ] || { echo "only ${#scripts[@]} scripts were found" >&2; exit 1; }
shellcheck --external-sources --source-path=SCRIPTDIR --source-path=. "${scripts[@]}"
echo "${#scripts[@]} scripts"
