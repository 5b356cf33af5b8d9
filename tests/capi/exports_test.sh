#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that libplumb.so exports exactly the functions of plumb.h, and that its SONAME and the version of its symbols
# are those of the header.
#
#   exports_test.sh LIBRARY HEADER
set -euo pipefail
abi=0.$(sed -nE 's/^#define PLUMB_ABI_VERSION ([0-9]+)u$/\1/p' "$2")
readelf --dynamic "$1" | grep -F "[libplumb.so.$abi]"
diff <(nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sort) \
     <(grep -oE '\bplumb_[a-z0-9_]+\(' "$2" | sort -u | sed "s/($/@@PLUMB_$abi/")
