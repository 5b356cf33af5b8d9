#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes Debian packages of this source tree in build/package/packages: libplumb0.3, plumb-norms,
# libplumb-dev, plumb and, if there is an MPI, plumb-mpi. The same sources produce the same
# packages, because file times are the commit's, or SOURCE_DATE_EPOCH.
#
#   tools/make_packages.sh [CMAKE_ARGUMENT...]     such as -DPLUMB_PACKAGE_MAINTAINER="Name <name@domain>"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for program in dpkg-deb dpkg-shlibdeps; do
  command -v "$program" > /dev/null || { echo "make_packages: $program is missing (dpkg-dev)" >&2; exit 1; }
done
umask 022
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git -c safe.directory='*' log -1 --format=%ct 2> /dev/null) || SOURCE_DATE_EPOCH=$(date +%s)
fi
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8
cmake --preset package "$@"
cmake --build --preset package --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
rm -rf build/package/packages
cpack --config build/package/CPackConfig.cmake
rm -rf build/package/packages/_CPack_Packages
# cpack uses Ubuntu's name for packages of debug symbols.
for file in build/package/packages/*.ddeb; do
  [ ! -e "$file" ] || mv "$file" "${file%.ddeb}.deb"
done
ls -l build/package/packages
