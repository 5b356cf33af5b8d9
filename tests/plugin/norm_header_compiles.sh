#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the norm ABI header compiles alone without warnings, in every version of C and C++ in which a
# plugin may be written, and that a norm that uses norm_rows.h does.
#   norm_header_compiles.sh INCLUDE_DIRECTORY NORM_IN_C NORM_IN_CPP
set -u
include="$1" rows_c="$2" rows_cpp="$3"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# The source uses everything that a plugin uses: the entry, PLUMB_HAS, two notes in one file.
cat > "$work/norm.c" <<'SOURCE'
#include "plumb/norm_plugin.h"
PLUMB_NORM_NOTE("org.example.one");
PLUMB_NORM_NOTE("org.example.two");
static int Reaches(const plumb_norm_call *call) {
  return PLUMB_HAS(plumb_norm_call, call, err_cap);
}
const plumb_norm_plugin *plumb_norm_plugin_v1(uint32_t index) {
  plumb_norm_call call;
  call.struct_size = (uint32_t)sizeof(call);
  (void)index;
  (void)Reaches(&call);
  return NULL;
}
SOURCE
cp "$work/norm.c" "$work/norm.cc"

flags="-pedantic -Werror -Wall -Wextra -Wshadow -Wconversion -fPIC -shared -fvisibility=hidden"
compilers=0
failures=0
compile() {  # compiler standard source notes
  # shellcheck disable=SC2086  # the flags are split into words
  if ! "$1" "-std=$2" $flags ${5:-} -I "$include" "$3" -o "$work/norm.so" -lm; then
    echo "FAILED: $1 -std=$2" >&2
    failures=$((failures + 1))
  elif command -v readelf > /dev/null &&
       [ "$(readelf -n "$work/norm.so" | grep -c '^ *plumb ')" != "$4" ]; then
    echo "FAILED: $1 -std=$2: the file does not carry $4 notes" >&2
    failures=$((failures + 1))
  fi
}
# Every header of the ABI compiles alone.
for header in plumb/types.h plumb/norm_plugin.h plumb/ext/residual.h plumb/ext/combine.h plumb/ext/instance.h; do
  printf '#include "%s"\ntypedef int plumb_test_not_empty;\n' "$header" >> "$work/$(basename "$header" .h)_alone.c"
done
for pair in gcc:g++ clang:clang++; do
  c=${pair%:*}
  cxx=${pair#*:}
  if command -v "$c" > /dev/null; then
    compilers=$((compilers + 1))
    for alone in "$work"/*_alone.c; do
      # shellcheck disable=SC2086
      "$c" -std=c11 $flags -I "$include" "$alone" -o "$work/alone.so" || failures=$((failures + 1))
    done
    for standard in c11 c17; do
      compile "$c" "$standard" "$work/norm.c" 2
      for level in 0 3; do compile "$c" "$standard" "$rows_c" 1 "-DPLUMB_ROWS_MAX_LEVEL=$level"; done
    done
  fi
  if command -v "$cxx" > /dev/null; then
    for standard in c++11 c++14 c++17 c++20; do
      compile "$cxx" "$standard" "$work/norm.cc" 2
      compile "$cxx" "$standard" "$rows_cpp" 1 -O1
    done
  fi
done
if [ "$compilers" = 0 ]; then
  echo "FAILED: neither gcc nor clang is installed" >&2
  exit 1
fi
[ "$failures" = 0 ]
