#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# C that defines every symbol that a protobuf library exports, as a function that ends the process: what
# a host with protobuf of another version looks like to a library that calls protobuf through the
# dynamic linker.
#
#   protobuf_symbols.sh LIBRARY OUTPUT
set -euo pipefail
mapfile -t symbols < <(
  nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | grep -E '^[A-Za-z_][A-Za-z0-9_]*$' | sort -u
)
if [ "${#symbols[@]}" -lt 1000 ]; then
  echo "$1 exports hardly anything" >&2
  exit 1
fi
{
  cat <<'C'
#include <stdio.h>
#include <stdlib.h>
void HostsProtobuf(void) {
  fputs("the protobuf of the host was used\n", stderr);
  abort();
}
C
  printf 'void %s(void) __attribute__((alias("HostsProtobuf")));\n' "${symbols[@]}"
} > "$2"
