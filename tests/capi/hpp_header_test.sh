#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that plumb.hpp calls every function of plumb.h, that each of its files compiles alone, and
# that it compiles without warnings with every installed compiler, in C++17 and C++20, with and
# without exceptions.
#   hpp_header_test.sh INCLUDE_DIRECTORY NORM_ABI_DIRECTORY
set -euo pipefail
types=$(realpath "$2")
cd "$1"
headers=(plumb.hpp plumb/*.hpp)
functions() { grep -ohE '\bplumb_[a-z0-9_]+\(' "$@" | sort -u; }
# Handles free by functions that their types name. GetText calls its argument.
frees() { grep -ohE '\bplumb_[a-z0-9_]+_free\b' "$@" | sed 's/$/(/'; }
texts() { grep -ohE '\<GetText\(plumb_[a-z0-9_]+' "$@" | sed 's/GetText(//; s/$/(/'; }
missing=$(comm -23 <(functions plumb.h) <({ functions "${headers[@]}"; frees "${headers[@]}"; texts "${headers[@]}"; } | sort -u))
[ -z "$missing" ] || { echo "plumb.hpp does not call: $missing" >&2; exit 1; }

tried=0
for compiler in g++ clang++; do
  command -v "$compiler" > /dev/null || { echo "$compiler is not installed: not tried" >&2; continue; }
  for flags in "-std=c++17" "-std=c++20" "-std=c++17 -fno-exceptions -fno-rtti"; do
    for header in "${headers[@]}"; do
      # One compiler is enough to check that a part compiles alone.
      [ "$header" = plumb.hpp ] || [ "$compiler $flags" = "g++ -std=c++17" ] || continue
      # shellcheck disable=SC2086  # flags are words
      echo "#include \"$header\"" | "$compiler" $flags -I . -I "$types" -x c++ - -fsyntax-only \
        -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wpedantic -Werror
      tried=$((tried + 1))
    done
  done
done
[ "$tried" -gt 0 ] || { echo "FAILED: neither g++ nor clang++ is installed" >&2; exit 1; }
