#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the shared objects of a host that samples and of one that trains, with sizes in KB and their sum.
# Fails if sampling loads oneDNN or its dependencies.
#
#   loaded_libraries.sh HOST [DIRECTORY_OF_ANOTHER_LIBPLUMB]     another libplumb is only printed
set -euo pipefail
host=$1 other=${2:-}
[ -z "$other" ] || export LD_LIBRARY_PATH=$other${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

mapped() { "$host" "$@" | sed -n 's/^mapped //p' | sort -u; }

sizes() {
  local file total=0 size
  while read -r file; do
    size=$(($(stat -L -c %s "$file") / 1024))
    total=$((total + size))
    printf '%8d  %s\n' "$size" "$file"
  done
  printf '%8d  KB in all\n' "$total"
}

sampling=$(mapped sample)
training=$(mapped train onednn)
echo "a host that samples:"
sizes <<< "$sampling"
echo "one that trains by oneDNN has besides:"
comm -13 <(printf '%s\n' "$sampling") <(printf '%s\n' "$training") | sizes
[ -z "$other" ] || exit 0

# Training must load oneDNN, which shows that the check below can find it.
grep -q libdnnl <<< "$training" || { echo "training by oneDNN did not load it" >&2; exit 1; }
if grep -E 'libdnnl|libgomp|libOpenCL' <<< "$sampling" >&2; then
  echo "sampling loaded these, and needs none" >&2
  exit 1
fi
