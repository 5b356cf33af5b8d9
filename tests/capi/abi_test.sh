#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that plumb.h has the ABI of the baseline next to this file, tests/capi/libplumb.abi.
# Functions may be added, and fields at the ends of structs that begin with struct_size; all other
# changes are errors.
#
#   abi_test.sh HEADER ABI             runs the test and checks that it fails for incompatible headers
#   abi_test.sh --renew HEADER ABI     after functions were added: writes the baseline and the symbols file of the
#                                      Debian package again
# ABI is the directory of plumb/types.h.
#
# The test compares not libplumb.so but a library made from plumb.h alone, in which each function
# has an empty body. The compiler checks the implementation against the header, and exports_test.sh
# checks the exports. The header needs no second build with debug information, shows no internal
# types, and compiles in a moment. The library also has an array for each constant, whose length
# encodes the constant's value, because abidiff compares only types that symbols refer to. It has
# such variables for the fields of structs that may grow, too, because abidiff (2.2) accepts every
# struct that has grown as one that has grown at its end.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
baseline="$here/libplumb.abi"
renew=
if [ "${1:-}" = --renew ]; then renew=1 && shift; fi
header=$(realpath "$1") abi=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
if ! command -v abidw > /dev/null; then
  echo "abidw is not installed (abigail-tools): not tried" >&2
  [ -z "$renew" ] || exit 1
  exit 77
fi

# Prints the structs that begin with struct_size, one per line, with their fields.
growing() {
  tr '\n' ' ' < "$1" | grep -oE 'typedef struct [a-z_]+ \{ *uint32_t struct_size;[^}]*\} *[a-z_]+' | awk '
    {
      name = $NF; sub(/^typedef struct [a-z_]+ \{/, ""); sub(/\}[^}]*$/, ""); line = name
      n = split($0, declarations, ";")
      for (i = 1; i <= n; ++i) {
        d = declarations[i]
        if (match(d, /\(\* *[a-z0-9_]+\)/)) {
          field = substr(d, RSTART, RLENGTH); gsub(/[(*) ]/, "", field); line = line " " field
        } else {
          m = split(d, names, ",")
          for (j = 1; j <= m; ++j) {
            sub(/\[.*/, "", names[j])
            if (match(names[j], /[a-z0-9_]+ *$/)) { field = substr(names[j], RSTART); gsub(/ /, "", field); line = line " " field }
          }
        }
      }
      print line
    }'
}

# describe HEADER NAME writes NAME.abi of the stub library, and NAME.grows, the structs that may
# grow.
describe() {
  local name=$2 preprocessed="$work/$2.i" stub="$work/$2.c"
  sed '/^PLUMB_STATIC_ASSERT(sizeof/d' "$1" > "$work/plumb.h"  # a variant may have other sizes
  echo '#include "plumb.h"' | cc -std=c11 -E -P -I "$work" -I "$abi" -x c - > "$preprocessed"
  {
    echo '#include "plumb.h"'
    # Prints each function declaration at the outermost level with a body in place of its ";".
    tr '\n' ' ' < "$preprocessed" | awk '
      BEGIN { RS = ";" }
      {
        text = text $0
        opened += gsub(/{/, "{"); closed += gsub(/}/, "}")
        if (opened > closed) { text = text ";"; next }
        if (text !~ /typedef|enum|struct *[a-z_]* *{|_Static_assert/ && text ~ /plumb_[a-z0-9_]+ *\(/) {
          # C11 requires names of the parameters in a definition.
          print text " { __builtin_trap(); }"
        }
        text = ""
      }'
    # Constants are enumerators, and macros that are numbers.
    {
      tr '\n' ' ' < "$preprocessed" | grep -oE 'enum *\{[^}]*\}' | grep -oE 'PLUMB_[A-Z0-9_]+' || true
      sed -nE 's/^#define (PLUMB_[A-Z0-9_]+) +[0-9].*/\1/p' "$work/plumb.h"
    } | sort -u | while read -r constant; do
      echo "char value_of_${constant}[1000 + ($constant)];"
    done
    # These variables hold the types and offsets of the fields of structs that may grow.
    growing "$preprocessed" | while read -r struct fields; do
      for field in $fields; do
        echo "__typeof__((($struct*)0)->$field) type_of_${struct}_$field;"
        echo "char place_of_${struct}_${field}[1 + __builtin_offsetof($struct, $field)];"
      done
    done
  } > "$stub"
  cc -std=c11 -g "-ffile-prefix-map=$work=." -O0 -fPIC -shared -Wall -Wno-return-type -I "$work" -I "$abi" -Wl,-soname,libplumb.so -o "$work/$name.so" "$stub"
  abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$work/$name.abi" "$work/$name.so"
  growing "$preprocessed" | cut -d ' ' -f 1 > "$work/$name.grows"
}

# compare NAME fails if NAME breaks the ABI of the baseline. It writes abidiff's output to
# NAME.said.
compare() {
  local structs
  structs=$(paste -sd '|' "$work/$1.grows")
  cat > "$work/grows.ini" << END
[suppress_type]
  name_regexp = ^($structs)\$
  has_data_member_inserted_at = end
  has_size_change = yes
END
  abidiff --no-added-syms --suppressions "$work/grows.ini" "$baseline" "$work/$1.abi" > "$work/$1.said" 2>&1
}

describe "$header" now
functions=$(grep -c 'elf-symbol name=.plumb_' "$work/now.abi")
[ "$functions" = "$(grep -oE '\bplumb_[a-z0-9_]+\(' "$header" | sort -u | wc -l)" ] ||
  fail "$functions functions were understood, and plumb.h has others"

symbols=$(realpath "$here/../../cmake/packages/libplumb0.3.symbols")
if [ -n "$renew" ]; then
  cp "$work/now.abi" "$baseline"
  version=$(sed -nE 's/^project\(plumb VERSION ([0-9.]+).*/\1/p' "$here/../../CMakeLists.txt")
  {
    head -n 2 "$symbols"
    for function in $(grep -oE '\bplumb_[a-z0-9_]+\(' "$header" | tr -d '(' | LC_ALL=C sort -u); do
      grep " $function@" "$symbols" || echo " $function@PLUMB_${version%.*} $version"
    done
  } > "$work/symbols"
  cp "$work/symbols" "$symbols"
  echo "$functions functions"
  exit
fi

diff <(sed -n 's/^ \(plumb_.*\)@.*/\1/p' "$symbols") <(grep -oE '\bplumb_[a-z0-9_]+\(' "$header" | tr -d '(' | LC_ALL=C sort -u) ||
  fail "$symbols does not have these functions: abi_test.sh --renew plumb.h plugins/abi"
compare now || { cat "$work/now.said" >&2; fail "the ABI of plumb.h has changed; if functions were only added: abi_test.sh --renew plumb.h plugins/abi"; }

# The test is tested with variants of the header.
variant() {
  local wanted=$1 name=$2
  shift 2
  sed -E "$@" "$header" > "$work/variant.h"
  ! cmp -s "$header" "$work/variant.h" || fail "the variant \"$name\" is plumb.h"
  describe "$work/variant.h" variant
  if compare variant; then got=passes; else got=fails; fi
  [ "$got" = "$wanted" ] || { cat "$work/variant.said" >&2; fail "\"$name\" $got"; }
  tried=$((tried + 1))
}
tried=0
variant passes "a new function" 's/^PLUMB_API const char\* plumb_version.*/&\nPLUMB_API int plumb_is_new(int x);/'
variant passes "a new constant" 's/^  PLUMB_EXPLAIN_GRAPH = 0/  PLUMB_IS_NEW = 99,\n&/'
variant passes "a new field at the end of options" '/^} plumb_runtime_options;/i\  const char* is_new;'
variant fails "a function that is gone" '/^PLUMB_API const char\* plumb_version/d'
variant fails "another name" 's/\bplumb_error_free\b/plumb_error_release/'
variant fails "another type of a result" 's/^(PLUMB_API) const char\* (plumb_version)/\1 uint64_t \2/'
variant fails "another type of an argument" 's/(plumb_error_message\()const plumb_error\*/\1int32_t/'
variant fails "a field in the middle" '/^typedef struct plumb_runtime_options \{/,/^\} plumb_runtime_options/s/^  int32_t threads;/  int32_t before;\n&/'
variant fails "another type of a field" 's/^  int32_t threads;/  int64_t threads;/'
variant fails "another type of a field, and a new one" -e 's/^  int32_t threads;/  uint32_t threads;/' -e '/^} plumb_runtime_options;/i\  const char* is_new;'
variant fails "another value" 's/^  PLUMB_EXPLAIN_PROMPT = 5,/  PLUMB_EXPLAIN_PROMPT = 15,/'
variant fails "a constant that is gone" '/^  PLUMB_EXPLAIN_PROMPT = 5/d'
variant fails "another argument of a callback" 's/(plumb_log_fn\)\(void\* user, )int32_t/\1int64_t/'
echo "$functions functions as before; $tried variants of plumb.h distinguished"
