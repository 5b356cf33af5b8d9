#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the installed files are complete and work after a move: no file contains the path of the
# installation or of the build; the tool finds norms, placements and the checker.
#   moved_runs.sh BUILD_DIRECTORY SOURCE_DIRECTORY
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
installed=$prefix
mkdir "$work/else where"
mv "$prefix" "$work/else where/moved"
prefix="$work/else where/moved"
export PATH="$prefix/bin:$PATH" PLUMB_PLUGIN_PATH='' PLUMB_PLACEMENT_PATH=''
cd "$work"
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

libdir=$(realpath "$(dirname "$(find "$prefix" -name plumb.pc)")/..")
for file in "$libdir"/libplumb.{so,so.0.3,a} "$libdir/plumb/norm-v1/rms_norm.so" "$libdir/cmake/plumb/plumb-config.cmake" \
  "$prefix"/include/{plumb.h,plumb.hpp,plumb/types.h,plumb/norm_plugin.h,plumb/ext/residual.h,plumb/norm_rows.h} "$prefix/share/plumb/placements/pre.pbtxt" \
  "$prefix"/share/man/man1/plumb{,-train,-compare,-plugin-new}.1; do
  [ -s "$file" ] || fail "$file is missing"
done
[ "$(find "$prefix/include" -name '*.h' | wc -l)" = 9 ] || fail "headers that are not public: $(ls -R "$prefix/include")"
if grep -rlF "$installed" "$prefix"; then fail "these name the directory of installation"; fi
# Names of sources in debug information are no paths that a program opens.
for file in $(cd "$prefix" && find . -type f ! -name '* *'); do
  cp "$prefix/$file" bare
  case $(head -c 4 bare | tr -d '\0') in $'\x7fELF') strip --strip-debug bare ;; '!<ar') strip --strip-debug bare ;; esac
  if grep -aqF -e "$(realpath "$1")" -e "$(realpath "$2")" bare; then
    fail "$file names the build: $(grep -aoE "$(realpath "$2")[[:print:]]*" bare | head -3)"
  fi
done

# The build has norms, too, but the tool must find the installed ones.
plumb plugin list | grep -F "$prefix/" | grep -q rms_norm || fail "norms: $(plumb plugin list)"
printf 'n_layer: 1 n_head: 1 d_model: 8 vocab_size: 9 context_length: 8\nblock { placement: "pre" norm: "rms_norm" }\n' > m.pbtxt
plumb describe m.pbtxt > /dev/null
plumb plugin check "$libdir/plumb/norm-v1/rms_norm.so" --level 1 > /dev/null
[ "$(plumb help --man train)" = "$(cat "$prefix/share/man/man1/plumb-train.1")" ] || fail "the page of plumb train"
