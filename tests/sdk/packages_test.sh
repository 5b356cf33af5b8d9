#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Debian packages of this build: their contents, control files and symbols, lintian if it is
# installed, and that a second build is identical. They equal those of tools/make_packages.sh except for two
# settings that a build for tests does not have, the multiarch directory and paths of the build.
#   packages_test.sh BUILD_DIRECTORY [PACKAGES]      PACKAGES: existing packages of make_packages.sh
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
for program in dpkg-deb dpkg-shlibdeps dpkg-gensymbols; do
  command -v "$program" > /dev/null || { echo "$program is not installed (dpkg-dev): not tried" >&2; exit 77; }
done

suppressed=()
if [ $# -ge 2 ]; then
  packages=$(realpath "$2")
else
  # shellcheck disable=SC2054  # the commas are lintian's
  suppressed=(--suppress-tags arch-dependent-file-not-in-arch-specific-directory,pkg-config-unavailable-for-cross-compilation)
  # The second build has another time and another umask.
  for name in packages again; do
    SOURCE_DATE_EPOCH=1700000000 cpack --config "$build/CPackConfig.cmake" -B "$work/$name" -D "CPACK_PLUMB_COMPRESSION=-Zgzip;-z1" > "$work/log" 2>&1 ||
      { cat "$work/log" >&2; fail "cpack"; }
    rm -rf "$work/$name/_CPack_Packages"
    umask 027
    sleep 1.1
  done
  for file in "$work/packages"/*.deb; do
    cmp "$file" "$work/again/$(basename "$file")" || fail "not made alike again"
  done
  packages=$work/packages
fi

deb() { find "$packages" -name "$1_*.deb"; }
field() { dpkg-deb --field "$(deb "$1")" "$2"; }
has() { dpkg-deb --contents "$(deb "$1")" | awk '{print $6}' | grep -E "^\./usr/$2\$" > /dev/null || fail "$1 has no usr/$2"; }
is() { [[ $(field "$1" "$2") =~ $3 ]] || fail "$1: $2 is \"$(field "$1" "$2")\""; }
soversion=0.3 library=libplumb0.3  # those of the SONAME
names=("$library" libplumb-dev plumb-norms plumb)
[ -z "$(deb plumb-mpi)" ] || names+=(plumb-mpi)  # built only with an installed MPI
[ -n "$(deb plumb-mpi)" ] || ! grep -q '^PLUMB_MPI:.*=ON' "$build/CMakeCache.txt" || fail "no plumb-mpi"
[ "$(find "$packages" -name '*.deb' ! -name '*-dbgsym_*' | wc -l)" = ${#names[@]} ] || fail "packages: $(ls "$packages")"

libdir='lib(/[a-z0-9_]+-linux-gnu[a-z0-9]*)?'
has "$library" "$libdir/libplumb.so.$soversion"
for file in "include/plumb.h" "include/plumb/types.h" "include/plumb/norm_plugin.h" "include/plumb/ext/residual.h" "include/plumb/norm_rows.h" share/plumb/schemas/model.schema.json "$libdir/libplumb.so" "$libdir/libplumb.a" "$libdir/pkgconfig/plumb.pc" \
  "$libdir/cmake/plumb/plumb-config.cmake" "$libdir/cmake/plumb/plumb-targets.cmake" share/plumb/python/plumb_runtime/__init__.py; do
  has libplumb-dev "$file"
done
for file in "$libdir/plumb/norm-v1/rms_norm.so" "share/plumb/placements/pre.pbtxt"; do has plumb-norms "$file"; done
for file in bin/plumb libexec/plumb/plumb-norm-check share/man/man1/plumb.1.gz share/man/man1/plumb-plugin-new.1.gz \
  share/doc/plumb/README.md share/doc/plumb/docs/placements.md share/doc/plumb/examples/why_normalise/pre.pbtxt; do
  has plumb "$file"
done
[ ${#names[@]} = 4 ] || has plumb-mpi "$libdir/plumb/libplumb-mpi.so"
for package in "${names[@]}"; do
  for file in copyright changelog.Debian.gz; do has "$package" "share/doc/$package/$file"; done
  dpkg-deb --contents "$(deb "$package")" | awk '$2 != "root/root" || substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w" { if (substr($1, 1, 1) != "l") { print; bad = 1 } } END { exit bad }' ||
    fail "$package: owners or rights"
  dpkg-deb --raw-extract "$(deb "$package")" "$work/$package"
  (cd "$work/$package" && md5sum --quiet -c DEBIAN/md5sums) || fail "$package: md5sums"
  [ ! -e "$work/$package/DEBIAN/postinst" ] || fail "$package has a postinst"
done
# No file is in two packages.
twice=$(for file in "$packages"/*.deb; do dpkg-deb --contents "$file" | awk '$1 !~ /^d/ {print $6}'; done | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"

# Debug symbols, if there are any, must match the files in the packages.
for package in "$library" plumb; do
  [ -n "$(deb $package-dbgsym)" ] || continue
  dpkg-deb --raw-extract "$(deb $package-dbgsym)" "$work/$package-dbgsym"
  binary=$(find "$work/$package" -path '*/bin/plumb' -o -type f -name 'libplumb.so.*')
  id=$(readelf -n "$binary" | sed -n 's/.*Build ID: //p')
  symbols="$work/$package-dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
  readelf -S "$symbols" | grep -q '\.debug_line' || fail "$package-dbgsym: no lines in $symbols"
  if readelf -S "$binary" | grep -qE '\.debug_|\.symtab'; then fail "$package: $binary is not stripped"; fi
done

norms='^plumb-norms \(>= [0-9.]+\), plumb-norms \(<< [0-9.]+~\), .*'
is "$library" Depends "${norms}libc6 \(>= .*, libstdc\+\+6"
is plumb Depends "${norms}libc6 \(>= "
[ ${#names[@]} = 4 ] || is plumb-mpi Depends '^plumb \(= .*mpi'
for package in "$library" libplumb-dev plumb-norms plumb; do  # no other package depends on MPI
  [[ ! $(field $package Depends) =~ mpi ]] || fail "$package depends on MPI"
done
is libplumb-dev Depends "^$library \(= $(field "$library" Version)\)\$"
is "$library" Section '^libs$'
is "$library" Multi-Arch '^same$'
grep -qx 'activate-noawait ldconfig' "$work/$library/DEBIAN/triggers" || fail "$library: triggers"
grep -qE "^libplumb $soversion $library \(>= " "$work/$library/DEBIAN/shlibs" || fail "$library: shlibs"
# The list of symbols must be complete: -c4 fails if one is new or missing.
mkdir -p "$work/source/debian" && cd "$work/source"
printf 'Source: plumb\n\nPackage: %s\nArchitecture: any\n' "$library" > debian/control
dpkg-gensymbols -c4 -p"$library" -v"$(field "$library" Version)" -P"$work/$library" -I"$work/$library/DEBIAN/symbols" \
  -e"$(find "$work/$library" -type f -name 'libplumb.so.*')" -O"$work/symbols" > "$work/gensymbols" 2>&1 ||
  { cat "$work/gensymbols" >&2; fail "$library: symbols"; }

if command -v lintian > /dev/null; then
  lintian --no-cfg --allow-root --fail-on error --tag-display-limit 0 "${suppressed[@]}" "$packages"/*.deb > "$work/lintian" 2>&1 ||
    { cat "$work/lintian" >&2; fail "lintian"; }
  cat "$work/lintian"
else
  echo "lintian is not installed: not tried" >&2
fi
