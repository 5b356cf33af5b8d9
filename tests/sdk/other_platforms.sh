#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles and links the C template of a norm for platforms on which plumb does not run, and looks for its note and its
# symbol in the file: Windows by MinGW, and by zig, which has libraries of all of them, also macOS and Linux on ARM.
# Skipped (77) without both. ZIG is a command, such as "python3 -m ziglang".
#   tests/sdk/other_platforms.sh SOURCE_DIRECTORY
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c11 -O2 -Wall -Wextra -Werror -shared -I "$source/plugins/abi" "$source/plugins/template/my_norm.c")
built=0

# Fails unless the file has the section and once the bytes of the note, and names the entry symbol.
check() {
  python3 - "$1" "$2" << 'END'
import struct, sys
data, section = open(sys.argv[1], "rb").read(), sys.argv[2].encode()
note = struct.pack("<3I8s2I64s", 6, 72, 1, b"plumb", 1, 1, b"org.example.my_norm")
if data.count(note) != 1 or section not in data or b"plumb_norm_plugin_v1" not in data:
    sys.exit(f"{sys.argv[1]} has {data.count(note)} notes; section {section in data}")
END
  echo "$(basename "$1"): note in $2"
}

if command -v x86_64-w64-mingw32-gcc > "$work/found"; then
  x86_64-w64-mingw32-gcc "${flags[@]}" -o "$work/mingw.dll"
  check "$work/mingw.dll" .plumb
  built=1
fi
read -r -a zig <<< "${ZIG:-zig}"
if "${zig[@]}" version > "$work/found" 2>&1; then
  export ZIG_GLOBAL_CACHE_DIR="$work/cache" ZIG_LOCAL_CACHE_DIR="$work/cache"
  while read -r target file section; do
    "${zig[@]}" cc -target "$target" "${flags[@]}" -fPIC -o "$work/$file" < /dev/null
    check "$work/$file" "$section"
  done << 'END'
aarch64-macos macos_arm.dylib __plumb_norm
x86_64-macos macos.dylib __plumb_norm
x86_64-windows-gnu windows.dll .plumb
aarch64-linux-gnu linux_arm.so .note.plumb
END
  built=1
fi
if [ "$built" = 0 ]; then
  echo "skipped: there is neither x86_64-w64-mingw32-gcc nor zig"
  exit 77
fi
