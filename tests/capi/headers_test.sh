#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that plumb.h compiles without warnings in C and C++, next to plumb/norm_plugin.h in either order, and with
# compilers that lack GNU attributes; and that every struct with a struct_size has an initializer that sets it.
#   headers_test.sh INCLUDE_DIRECTORY NORM_ABI_DIRECTORY
set -euo pipefail
include=$(realpath "$1") abi=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

structs=$(sed -nE 's/^typedef struct (plumb_[a-z_]+) \{$/\1/p' "$include/plumb.h")
[ "$(wc -w <<< "$structs")" -ge 18 ] || fail "only these structs were found: $structs"
{
  echo '#include "plumb.h"'
  echo 'int main(void) {'
  for struct in $structs; do
    macro=$(tr '[:lower:]' '[:upper:]' <<< "$struct")_INIT
    grep -q "^#define $macro " "$include/plumb.h" || fail "$struct has no $macro"
    echo "  { const $struct made = $macro; if (made.struct_size != sizeof(made)) return 1; }"
  done
  echo '  return plumb_error_code(NULL) == PLUMB_OK ? 0 : 1;'
  echo '}'
} > "$work/structs.c"
printf '%s\n' '#include "plumb.h"' '#include "plumb/norm_plugin.h"' > "$work/plumb_first.c"
printf '%s\n' '#include "plumb/norm_plugin.h"' '#include "plumb.h"' > "$work/norm_first.c"
for order in plumb_first norm_first; do
  cat >> "$work/$order.c" << 'END'
plumb_status Register(plumb_runtime* runtime, const plumb_norm_plugin* plugin);
plumb_status Register(plumb_runtime* runtime, const plumb_norm_plugin* plugin) {
  return plumb_plugin_register(runtime, plugin, NULL);
}
END
done

flags=(-pedantic -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only -I "$include" -I "$abi")
tried=0
for pair in gcc:g++ clang:clang++; do
  c=${pair%:*} cxx=${pair#*:}
  if command -v "$c" > /dev/null; then
    for standard in c99 c11 c17; do
      "$c" "-std=$standard" "${flags[@]}" "$work/structs.c"
      [ "$standard" = c99 ] || "$c" "-std=$standard" "${flags[@]}" "$work/plumb_first.c" "$work/norm_first.c"
      # A compiler without GNU attributes.
      "$c" "-std=$standard" -U__GNUC__ "${flags[@]}" "$work/structs.c"
      tried=$((tried + 1))
    done
  fi
  if command -v "$cxx" > /dev/null; then
    for standard in c++11 c++14 c++17 c++20; do
      "$cxx" "-std=$standard" "${flags[@]}" -x c++ "$work/structs.c" "$work/plumb_first.c" "$work/norm_first.c"
      tried=$((tried + 1))
    done
  fi
done
[ "$tried" -gt 0 ] || fail "neither gcc nor clang is installed"
# Unused results are warned of.
cat > "$work/unused.c" << 'END'
#include "plumb.h"
void Create(plumb_runtime** runtime);
void Create(plumb_runtime** runtime) { plumb_runtime_create(PLUMB_ABI_VERSION, NULL, runtime, NULL); }
END
for compiler in gcc clang; do
  command -v "$compiler" > /dev/null || continue
  # gcc finds them only when it generates code.
  if "$compiler" -std=c11 -Werror -I "$include" -I "$abi" -c -o "$work/unused.o" "$work/unused.c" 2> /dev/null; then fail "$compiler: an unused status is no warning"; fi
done
echo "$tried compilers and standards, $(wc -w <<< "$structs") structs"
