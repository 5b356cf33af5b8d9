#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that a host in C can link libplumb.a of an installed plumb that was moved afterwards, by find_package
# in a project without C++ and by pkg-config --static. It trains and samples as with libplumb.so, and loads no
# libplumb.
#   static_runs.sh BUILD_DIRECTORY EXAMPLES
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
mkdir "$work/host"
cp "$2/embed_c/main.c" "$work/host"
cat > "$work/host/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.16)
project(host C)
find_package(plumb REQUIRED)
add_executable(linked_in main.c)
target_link_libraries(linked_in PRIVATE plumb::plumb_static)
add_executable(shared main.c)
target_link_libraries(shared PRIVATE plumb::plumb)
END
mv "$prefix" "$work/moved"
prefix="$work/moved"
libdir=$(realpath "$(dirname "$(find "$prefix" -name plumb.pc)")/..")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
cd "$work"

cmake -S host -B host/build -DCMAKE_PREFIX_PATH="$prefix" > cmake.log || { cat cmake.log >&2; exit 1; }
cmake --build host/build
# shellcheck disable=SC2046  # the flags are split into words
cc host/main.c -o by_pkg_config $(pkg-config --cflags --libs --static plumb | sed 's/-lplumb /-l:libplumb.a /')

# A statically linked program does not know the prefix, so the directory of norms is set explicitly.
export PLUMB_PLUGIN_PATH="$libdir/plumb/norm-v1" PLUMB_PLACEMENT_PATH="$prefix/share/plumb/placements"
host/build/shared > shared.out
[ -s shared.out ]
for host in host/build/linked_in ./by_pkg_config; do
  "$host" | cmp - shared.out
  if readelf -d "$host" | grep NEEDED | grep -E 'libplumb|libOpenCL'; then exit 1; fi
done
# The flags for hosts of the shared library still name only plumb, so that no other library must be installed.
[ "$(pkg-config --libs plumb | wc -w)" = 2 ]
