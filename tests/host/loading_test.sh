#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests libplumb.so in a process that loads and unloads it, loads it twice, or has a locale of its own. plumb
# must print nothing.
#
#   tests/host/loading_test.sh HOST LIBRARY
set -euo pipefail
host=$1 library=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

expect() {  # expect WORDS...: runs the host, which must print "ok"
  local said
  said=$("$host" "$@") || exit 1
  printf '%s: %s\n' "$1" "$said"
  [[ $said == ok* ]]
}

expect reload "$library"
# The copy has norms and placements next to it, like an installed one.
below=${library#"${library%/lib*/*}/"}  # for example lib/libplumb.so, lib/x86_64-linux-gnu/libplumb.so
prefix=${library%"/$below"}
mkdir -p "$scratch/$(dirname "$below")"
cp -L "$library" "$scratch/$(dirname "$below")/libplumb-copy.so"
ln -s "$(dirname "$library")/plumb" "$scratch/$(dirname "$below")/plumb"
ln -s "$prefix/share" "$scratch/share"
expect two "$library" "$scratch/$(dirname "$below")/libplumb-copy.so"
expect quiet "$library"
if command -v localedef > /dev/null &&
  localedef -c -i de_DE -f UTF-8 "$scratch/de_DE.UTF-8" 2> /dev/null; then
  LOCPATH=$scratch LC_ALL=de_DE.UTF-8 expect locale "$library"
else
  echo "locale: not tested, for want of Debian's package locales" >&2
  exit 1
fi
