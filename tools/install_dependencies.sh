#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the missing packages of Debian 12 or 13, by purpose. Does nothing if all are installed.
#
#   tools/install_dependencies.sh run      to build and run plumb
#   tools/install_dependencies.sh test     also to test and measure it (the default)
#   tools/install_dependencies.sh fuzz     also to run the fuzzers
#   tools/install_dependencies.sh release  also to run tools/test_in_chroot.sh
#   tools/install_dependencies.sh aarch64  to build for ARM and test under QEMU (tests/aarch64.sh)
#
# make, pkg-config and cargo are for building norms outside of plumb, clang for the tests of the
# files that authors of norms get, python3-jsonschema for the test of JSON results, libomp-dev,
# locales, rustc, libcpp-httplib-dev, numpy, mypy and curl for the tests of programs that embed plumb,
# chromium for those of the report. The latter also need node 20, playwright-core and axe-core, which
# are downloaded if there is such a node.
set -euo pipefail

purpose=${1:-test}
packages=(
  g++ cmake ninja-build
  libdnnl-dev ocl-icd-opencl-dev libprotobuf-dev protobuf-compiler libabsl-dev libcli11-dev libhwy-dev
  nlohmann-json3-dev libpcre2-dev make pkg-config
)
test_packages=(
  clang libomp-dev locales python3 python3-numpy mypy python3-jsonschema curl rustc cargo libcpp-httplib-dev
  libgtest-dev libgmock-dev chromium
  libopenmpi-dev openmpi-bin iproute2  # several processes and, in network namespaces, several hosts
  mandoc groff-base less lintian abigail-tools  # manual pages, packages, ABI
  shellcheck clang-format clang-tidy  # tests/shellcheck.sh, tests/clang_format.sh, tools/lint.sh
)
case $purpose in
  run) ;;
  test) packages+=("${test_packages[@]}") ;;
  fuzz) packages+=("${test_packages[@]}" libclang-rt-dev) ;;
  release) packages+=("${test_packages[@]}" libclang-rt-dev debootstrap git) ;;
  aarch64)
    # Programs that run while building are of this processor, libraries of the other one.
    packages=(
      crossbuild-essential-arm64 qemu-user-static cmake ninja-build pkg-config protobuf-compiler python3
      libcli11-dev nlohmann-json3-dev file binutils
      {libdnnl-dev,ocl-icd-opencl-dev,libprotobuf-dev,libabsl-dev,libhwy-dev,libpcre2-dev,libgtest-dev,libgmock-dev}:arm64
    ) ;;
  *)
    echo "usage: install_dependencies.sh [run|test|fuzz|release|aarch64]" >&2
    exit 2
    ;;
esac

# The browser tests need these packages; without them they are skipped with a message.
install_browser_packages() {
  local directory
  [ "$purpose" != run ] || return 0
  directory=$(dirname "${BASH_SOURCE[0]}")/../tests/report
  command -v npm > /dev/null && command -v node > /dev/null || return 0
  [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || return 0
  [ ! -d "$directory/node_modules/playwright-core" ] || [ ! -d "$directory/node_modules/axe-core" ] || return 0
  npm ci --silent --prefix "$directory" > /dev/null 2>&1 ||
    say "playwright-core and axe-core could not be fetched: the browser tests of the report will be skipped"
}

say() { printf '%s\n' "install_dependencies: $*" >&2; }

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  say "no apt here, so nothing is installed; plumb needs what Debian calls: ${packages[*]}"
  exit 0  # the packages may still be installed; CMake reports missing ones
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
  install_browser_packages
  exit 0
fi

if [ "$(id -u)" = 0 ]; then
  as_root=()
elif command -v sudo > /dev/null; then
  as_root=(sudo)
else
  say "these packages are missing, and this is neither root nor is there sudo. As root:"
  say "  apt-get update && apt-get install -y ${missing[*]}"
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >> "$log" 2>&1 \
    < /dev/null
}
install() { apt_get install -y --no-install-recommends "${missing[@]}"; }

say "installing ${missing[*]}"
if [ "$purpose" = aarch64 ]; then "${as_root[@]}" dpkg --add-architecture arm64; fi
for attempt in 1 2 3; do
  # A fresh system has no package lists, and old lists may name files that no longer exist.
  if install || { apt_get update && install; }; then
    install_browser_packages
    exit 0
  fi
  [ "$attempt" = 3 ] || sleep $((attempt * 5))
done
tail -n 20 "$log" >&2
say "apt-get failed; its last words are above"
exit 1
