#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes C code that defines every symbol of a protobuf library as a function that ends the process. It
# simulates a host with another version of protobuf for a library that calls protobuf through the dynamic
# linker.
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
