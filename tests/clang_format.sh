#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that C and C++ files have the format of .clang-format, as clang-format 14 writes it, Debian 12's: other
# versions break some lines elsewhere. Exits with 77 if it is not installed. Files that are left as they are:
# headers of released ABIs and programs against them (tests/sdk), mutants (tests/check/mutants), and *.hpp, whose
# namespace begins with a macro, which clang-format misreads.
#
#   tests/clang_format.sh [SOURCE_DIRECTORY]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
for format in clang-format-14 clang-format; do
  if command -v "$format" > /dev/null; then break; fi
done
version=$("$format" --version 2> /dev/null || echo none)
[[ $version =~ version\ 14\. ]] || { echo "skipped: clang-format 14 is not installed (found: $version)"; exit 77; }

mapfile -d '' files < <(find bench cli examples plugins proto runtime tests -type f \( -name '*.h' -o -name '*.c' -o -name '*.cc' \) \
  -not -path 'tests/sdk/*' -not -path 'tests/check/mutants/*' -not -path '*/node_modules/*' -not -path '*/build/*' -print0 | sort -z)
[ ${#files[@]} -ge 900 ] || { echo "only ${#files[@]} files were found" >&2; exit 1; }
"$format" --dry-run --Werror "${files[@]}"
echo "${#files[@]} files"
