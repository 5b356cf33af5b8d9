# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into a directory of its own and points PATH and pkg-config there, like for a user who has
# plumb without its sources. Sourced by the tests in this folder.
#   usage: . install.sh BUILD_DIRECTORY
# Sets `work`, a directory that is removed at the end, and `prefix`.
set -euo pipefail
umask 022  # plumb refuses plugins that others may write to
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/plumb"
cmake --install "$1" --prefix "$prefix" > "$work/install.log" || { cat "$work/install.log" >&2; exit 1; }
libdir=$(dirname "$(find "$prefix" -name plumb-norm.pc)")/..
export PATH="$prefix/bin:$PATH" PKG_CONFIG_PATH="$libdir/pkgconfig" NO_COLOR=1
unset PLUMB_PLUGIN_PATH CFLAGS LDFLAGS CC
