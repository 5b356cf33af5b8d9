#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that libplumb.so exports exactly the functions of plumb.h.
#
#   exports_test.sh LIBRARY HEADER
set -euo pipefail
diff <(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort) \
     <(grep -oE '\bplumb_[a-z0-9_]+\(' "$2" | tr -d '(' | sort -u)
