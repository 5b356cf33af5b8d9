#!/usr/bin/env bash
# examples/embed_c builds against an installed plumb that was moved afterwards, by find_package and by
# pkg-config, as C99 without a warning, and trains and samples there.
#   embed_runs.sh BUILD_DIRECTORY EXAMPLES
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
cp -R "$2/embed_c" "$work/embed_c"
mv "$prefix" "$work/moved"
prefix="$work/moved"
libdir=$(realpath "$(dirname "$(find "$prefix" -name plumb.pc)")/..")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
cd "$work"

CFLAGS="-std=c99 -Wall -Wextra -Werror -pedantic" cmake -S embed_c -B by_cmake \
  -DCMAKE_PREFIX_PATH="$prefix" > cmake.log
cmake --build by_cmake
by_cmake/embed_c | tee cmake.out
# shellcheck disable=SC2046  # flags are words
cc -std=c99 -Wall -Wextra -Werror -pedantic embed_c/main.c -o by_pkg_config $(pkg-config --cflags --libs plumb)
LD_LIBRARY_PATH="$libdir" ./by_pkg_config > pkg_config.out
cmp cmake.out pkg_config.out
grep -q '^step 60 loss ' cmake.out

# A host that has Abseil, protobuf or oneDNN of its own sees none of ours.
readelf -d by_pkg_config | grep NEEDED | grep -vE 'libplumb\.so\.1|libc\.so' && exit 1
true
