#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that two builds of the committed sources, in two directories of different names, without a compiler
# cache, give the same bytes: in every installed file and, if dpkg-deb is installed, in the Debian packages.
# It takes two release builds.
#
#   tests/equal_builds.sh [--keep]      --keep keeps the two directories, for example for diffoscope
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

keep=
case ${1:-} in
  --keep) keep=1 ;;
  '') ;;
  *)
    echo "usage: tests/equal_builds.sh [--keep]" >&2
    exit 2
    ;;
esac

commit=$(git rev-parse HEAD)  # for both builds, even if new commits appear
work=$(mktemp -d)
if [ -z "$keep" ]; then trap 'rm -rf "$work"' EXIT; fi
export CCACHE_DISABLE=1

# The names differ in length, so that a path in a file also moves the bytes after it.
for name in a another-directory; do
  mkdir -p "$work/$name"
  git archive "$commit" | tar -x -C "$work/$name"
  cmake -S "$work/$name" -B "$work/$name/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DPLUMB_UNITY=ON -DPLUMB_BUILD_TESTS=OFF -DPLUMB_BUILD_BENCH=OFF \
    -DPLUMB_BUILD_TREE_PATHS=OFF -DCMAKE_INSTALL_PREFIX=/usr >/dev/null
  cmake --build "$work/$name/build" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
  DESTDIR="$work/$name/installed" cmake --install "$work/$name/build" >/dev/null
  if command -v dpkg-deb >/dev/null; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit") \
      cpack --config "$work/$name/build/CPackConfig.cmake" -B "$work/$name/packages" >/dev/null
    rm -rf "$work/$name/packages/_CPack_Packages"
  fi
done

cd "$work"
list() { (cd "$1/installed" && find . ! -type d -printf '%p %l\n' | sort); }
files=$(list a | wc -l)
if [ "$files" = 0 ]; then
  echo "error: nothing was installed" >&2
  exit 1
fi
if ! diff <(list a) <(list another-directory); then
  echo "error: the builds install different files" >&2
  exit 1
fi
if ! diff -r a/installed another-directory/installed; then
  echo "error: the builds differ; directories of the first that are in its files:" >&2
  grep -rl --binary-files=text "$work/a" a/installed >&2 || true
  exit 1
fi
if [ -d a/packages ] && ! diff -r a/packages another-directory/packages; then
  echo "error: the packages differ" >&2
  exit 1
fi
echo "$files files, the same in both builds"
find a/packages -name '*.deb' -printf '%f, the same\n' 2>/dev/null | sort
