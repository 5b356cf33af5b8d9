#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that libraries of the host do not change the results: OpenMP of gcc and of clang, in parallel regions
# before, during and after plumb's work; a oneDNN of another version; and a missing or wrong oneDNN.
#
#   hosts_test.sh LIBPLUMB INCLUDE_DIRECTORY OTHER_INCLUDE_DIRECTORY
set -euo pipefail
library=$1 include=$2 types=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { printf 'hosts_test: %s\n' "$*" >&2; exit 1; }
# build COMPILER NAME FLAGS...
build() {
  local compiler=$1 name=$2
  shift 2
  "$compiler" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -I"$include" -I"$types" "$here/host.c" "$@" -o "$name" \
    "$library" -Wl,-rpath,"$(dirname "$library")" -pthread
}
digest() { sed -n 's/^digest //p'; }
equal() { [ "$2" = "$3" ] || fail "$1: the digest is $2, and $3 without"; }

build cc plain
./plain train onednn > trained
./plain sample > sampled
want=$(digest < trained) sampled=$(digest < sampled)
if [ -z "$want" ] || [ -z "$sampled" ]; then fail "no digest"; fi
! grep '^log' trained sampled || fail "there is nothing to warn of"
grep -qx 'oneDNN loaded' trained || fail "plumb does not say that oneDNN was loaded"
grep -qx 'oneDNN not needed yet' sampled || fail "plumb does not say that oneDNN was not needed"

# OpenMP: libomp comes with clang's packages, not with clang.
build gcc gomp -fopenmp
openmp=(gomp)
if clang -fopenmp -x c - -o omp.probe 2> /dev/null <<< 'int main(void) { return 0; }'; then
  build clang omp -fopenmp
  openmp+=(omp)
else
  echo "clang finds no libomp here: its hosts are not tested"
fi
for host in "${openmp[@]}"; do
  for run in 1 2 3; do
    equal "$host, run $run" "$("./$host" train onednn | digest)" "$want"
  done
  equal "$host sampling" "$("./$host" sample | digest)" "$sampled"
done
# oneDNN loads libgomp, so that a host with libomp has both.
if [ -x omp ]; then
  ./omp train onednn > out
  grep -q 'mapped .*libomp' out || fail "the host of libomp has no libomp"
fi

# The host links a oneDNN of another version.
c++ -std=c++17 -shared -fPIC -Wl,-soname,libdnnl.so.9 "$here/other_onednn.cc" -o libdnnl.so.9
build cc other -DHOST_ONEDNN ./libdnnl.so.9 -Wl,-rpath,"$work"
equal "a host with another oneDNN" "$(./other train onednn | digest)" "$want"
./other train onednn > out
grep -q '^mapped .*libdnnl.so.9' out || fail "the host has no oneDNN of its own"
equal "a host with another oneDNN, sampling" "$(./other sample | digest)" "$sampled"

# These directories contain libraries of the expected name and come before the system's.
file=$(sed -n 's/^mapped \(.*libdnnl.*\)/\1/p' trained)
soname=$(readelf -d "$file" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
major=${soname#libdnnl.so.}
major=${major%%.*}
mkdir broken version
# All names that plumb tries are wrong, so that it does not find the system's library by another name.
for name in "$soname" "${file##*/}" "libdnnl.so.$major"; do echo "not a library" > "broken/$name"; done
cc -shared -fPIC -x c - -o "version/$soname" << END
typedef struct { int major, minor, patch; const char* hash; unsigned runtimes[2]; } version_t;
const version_t* dnnl_version(void) { static const version_t v = {$((major + 1)), 2, 1, "", {0, 0}}; return &v; }
END
small=$(./plain train small | digest)
# refused DIRECTORY WHY checks that plumb refuses the library in DIRECTORY, and works without it.
refused() {
  LD_LIBRARY_PATH=$work/$1 ./plain train > out
  equal "without oneDNN ($1)" "$(digest < out)" "$small"
  [ "$(grep -c '^log: oneDNN cannot be used' out)" = 1 ] || fail "$1: one warning is wanted: $(grep '^log' out)"
  grep -q "^log: .*$2" out || fail "$1: $(grep '^log' out)"
  LD_LIBRARY_PATH=$work/$1 ./plain sample > out
  equal "without oneDNN ($1), sampling" "$(digest < out)" "$sampled"
  ! grep '^log' out || fail "$1: sampling needs none, and has nothing to warn of"
  ! LD_LIBRARY_PATH=$work/$1 ./plain train onednn > out 2> error || fail "$1: --gemm onednn worked"
  grep -q "engine onednn cannot be used: .*$2" error || fail "$1: $(cat error)"
}
refused broken "broken/$soname: "
refused version "version/$soname: is oneDNN $((major + 1)).2.1, and plumb was built for version $major"
echo "hosts: plain ${openmp[*]} other, $soname broken and of another version"
