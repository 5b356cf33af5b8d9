#!/usr/bin/env bash
# C that defines every symbol that a protobuf library exports, as a function that ends the process: what
# a host with protobuf of another version looks like to a library that calls protobuf through the
# dynamic linker.
#
#   protobuf_symbols.sh LIBRARY OUTPUT
set -euo pipefail
symbols=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | grep -E '^[A-Za-z_][A-Za-z0-9_]*$' | sort -u)
if [ "$(wc -l <<< "$symbols")" -lt 1000 ]; then
  echo "$1 exports hardly anything" >&2
  exit 1
fi
{
  echo '#include <stdio.h>'
  echo '#include <stdlib.h>'
  echo 'void HostsProtobuf(void) {'
  echo '  fputs("the protobuf of the host was used\n", stderr);'
  echo '  abort();'
  echo '}'
  sed 's/.*/void &(void) __attribute__((alias("HostsProtobuf")));/' <<< "$symbols"
} > "$2"
