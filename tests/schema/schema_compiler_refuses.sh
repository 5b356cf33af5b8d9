#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that protoc and the schema's compiler end the build with a message for schemas that are wrong, or that
# runtime/schema would not read like protobuf.
#
#   schema_compiler_refuses.sh PROTOC SCHEMA_COMPILER
set -euo pipefail
protoc=$1
compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0

# refuses WHAT DEFINITIONS [PACKAGE [SYNTAX]] expects the message WHAT, or success if WHAT is empty.
refuses() {
  printf 'syntax = "%s";\npackage %s;\n%s\n' "${4:-proto3}" "${3:-plumb.v9}" "$2" > test.proto
  local said status=0
  said=$({ "$protoc" --descriptor_set_out=descriptors test.proto && "$compiler" descriptors out; } 2>&1) || status=$?
  if [ -z "$1" ] && [ "$status" = 0 ]; then return; fi
  if [ -n "$1" ] && [ "$status" = 1 ] && [[ $said == *"$1"* ]]; then return; fi
  echo "$2: expected \"$1\", got \"$said\""
  failures=$((failures + 1))
}

refuses '' 'message A { message B { enum E { ZERO = 0; } E e = 1; } B b = 1; oneof o { string s = 2; B t = 3; } }'
refuses 'fields of type float are not supported' 'message A { float x = 1; }'
refuses 'fields of type bytes are not supported' 'message A { bytes x = 1; }'
refuses 'repeated bool is not supported' 'message A { repeated bool x = 1; }'
refuses 'repeated enums are not supported' 'enum E { ZERO = 0; } message A { repeated E x = 1; }'
refuses 'maps are not supported' 'message A { map<string, string> x = 1; }'
refuses 'holds itself' 'message A { B b = 1; } message B { repeated A a = 1; }'
refuses '' 'message A { reserved 2, 5 to 9; reserved "x"; bool y = 1; bool z = 3; }'
refuses 'reserved number 6' 'message A { reserved 2, 5 to 9; bool x = 6; }'
refuses 'is reserved' 'message A { reserved "x"; bool x = 1; }'
refuses 'reserved number 1' 'enum E { reserved 1; ZERO = 0; ONE = 1; }'
refuses '' "message A { $(for i in $(seq 130); do echo "optional bool x$i = $i;"; done) }"
refuses 'its number is below that of the field before it' 'message A { bool x = 2; bool y = 1; }'
refuses 'is not proto3' 'message A { optional int32 x = 1; }' plumb.v9 proto2
refuses "is not plumb's" 'message A { int32 x = 1; }' other
[ "$failures" = 0 ]
