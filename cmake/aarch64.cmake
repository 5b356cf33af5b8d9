# SPDX-License-Identifier: Apache-2.0
# Toolchain for ARM on Debian: crossbuild-essential-arm64, qemu-user-static, and the libraries of
# tools/install_dependencies.sh for arm64. Programs run by QEMU. tests/aarch64.sh uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
