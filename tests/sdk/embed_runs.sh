#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the hosts in C, C++ and Rust of examples/ build with an installed plumb that was moved
# afterwards, by find_package and by pkg-config, without warnings, and produce the expected output.
#   embed_runs.sh BUILD_DIRECTORY EXAMPLES
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
unset CXXFLAGS CXX
for name in embed_c embed_cpp embed_plugin embed_rust; do cp -R "$2/$name" "$work/$name"; done
mv "$prefix" "$work/moved"
prefix="$work/moved"
libdir=$(realpath "$(dirname "$(find "$prefix" -name plumb.pc)")/..")
export PKG_CONFIG_PATH="$libdir/pkgconfig"
cd "$work"
warnings="-Wall -Wextra -Wconversion -Wshadow -Werror -Wpedantic"
fail() { echo "FAILED: $*" >&2; exit 1; }

for name in embed_c embed_cpp embed_plugin; do
  c_standard=-std=c99
  [ "$name" = embed_c ] || c_standard=-std=c11
  CFLAGS="$c_standard $warnings" CXXFLAGS="$warnings" cmake -S "$name" -B "$name/build" \
    -DCMAKE_PREFIX_PATH="$prefix" > cmake.log || { cat cmake.log; exit 1; }
  cmake --build "$name/build" > build.log || { cat build.log; exit 1; }
done
read -ra flags <<< "$(pkg-config --cflags --libs plumb)"
read -ra strict <<< "$warnings"
cc -std=c99 "${strict[@]}" embed_c/main.c -o embed_c/by_pkg_config "${flags[@]}"
c++ -std=c++17 "${strict[@]}" embed_cpp/main.cc -o embed_cpp/by_pkg_config "${flags[@]}"
cc -std=c11 "${strict[@]}" -c embed_plugin/softsign.c -o softsign.o "${flags[@]}"
c++ -std=c++17 "${strict[@]}" embed_plugin/main.cc softsign.o -o embed_plugin/by_pkg_config "${flags[@]}"

# run NAME ARGUMENTS.. runs both builds, whose output must be equal, and writes it into NAME.out.
run() {
  local name=$1
  shift
  "$name/build/$name" "$@" | tee "$name.out"
  LD_LIBRARY_PATH="$libdir" "$name/by_pkg_config" "$@" | cmp "$name.out" -
}
run embed_c
grep -qx 'the quick br' embed_c.out || fail "embed_c has not learned its text"
[ "$(wc -l < embed_c/main.c)" -lt 100 ] || fail "embed_c is not small any more"

run embed_cpp embed_cpp/model.pbtxt
[ "$(grep -cE '^[a-z]+$' embed_cpp.out)" = 4 ] || fail "embed_cpp samples four names"
sed 's/n_head/n_hed/' embed_cpp/model.pbtxt > model.pbtxt
! embed_cpp/build/embed_cpp model.pbtxt 2> wrong.out || fail "a wrong description is no error"
grep -q 'did you mean "n_head"' wrong.out || fail "$(cat wrong.out)"
grep -qxFf wrong.out "$2/../docs/embedding.md" || fail "docs/embedding.md does not show: $(cat wrong.out)"

embed_cpp/build/embed_distill embed_cpp/model.pbtxt "$2/data/names.txt" | tee distill.out
awk '{ loss[NR] = $4 } END { exit !(NR == 8 && loss[8] < loss[5] / 20) }' distill.out || fail "embed_distill has not learned"

# embed_plugin searches no directories, so it works without the installed norms and placements.
chmod -x "$libdir/plumb/norm-v1"
mv "$prefix/share/plumb" "$work/elsewhere"
PLUMB_PLUGIN_PATH=/not/there PLUMB_PLACEMENT_PATH=/not/there run embed_plugin
mv "$work/elsewhere" "$prefix/share/plumb"
chmod +x "$libdir/plumb/norm-v1"
grep -q '^she sells' embed_plugin.out || fail "embed_plugin has not learned its text"
grep '^end.norm.weight: mean ' embed_plugin.out | grep -qv ' 1\.000$' || fail "the norm's gain has not moved"

# Debian's compiler is used even if another one comes first.
rustc=$(PATH=/usr/bin:$PATH command -v rustc) || { echo "rustc is not installed: embed_run/main.rs is not tried" >&2; rustc=; }
if PATH=/usr/bin:$PATH command -v cargo > /dev/null; then
  in_crate() { (cd embed_rust && PATH=/usr/bin:$PATH CARGO_HOME="$work/cargo" RUSTFLAGS="-D warnings" cargo "$@" --offline --quiet); }
  in_crate run --example train_and_sample | tee embed_rust.out
  grep -q '^0123, and then 4567' embed_rust.out || fail "embed_rust has not learned to count"
  in_crate test
  [ "$(cat embed_rust/src/*.rs | wc -l)" -lt 500 ] || fail "embed_rust is not small any more"
else
  echo "cargo is not installed: embed_rust is not tried" >&2
fi

# Programs in four languages open a run, without LD_LIBRARY_PATH, and continue a text like plumb sample.
cp -R "$2/embed_run" "$work/embed_run"
"$prefix/bin/plumb" train "$2/why_normalise/pre.pbtxt" --data "$2/data/names.txt" --train "$2/why_normalise/train.pbtxt" \
  --set model.n_layer=1 --set train.max_steps=300 --out run --quiet
expected=$("$prefix/bin/plumb" sample run --prompt ma --num 1 --temperature 0 2> /dev/null)
read -ra flags <<< "$(pkg-config --cflags --libs plumb) -Wl,-rpath,$libdir"
cc -std=c99 "${strict[@]}" embed_run/main.c -o embed_run/in_c "${flags[@]}"
c++ -std=c++17 "${strict[@]}" embed_run/main.cc -o embed_run/in_cpp "${flags[@]}"
programs=(in_c in_cpp)
if [ -n "$rustc" ]; then
  read -ra flags <<< "$(pkg-config --libs plumb)"
  "$rustc" --edition 2021 -D warnings embed_run/main.rs -o embed_run/in_rust "${flags[@]}" -C "link-arg=-Wl,-rpath,$libdir"
  programs+=(in_rust)
fi
if command -v go > /dev/null; then
  CGO_LDFLAGS="-Wl,-rpath,$libdir" GOCACHE="$work/go" go build -o embed_run/in_go embed_run/main.go
  programs+=(in_go)
else
  echo "go is not installed: embed_run/main.go is not tried" >&2
fi
for program in "${programs[@]}"; do
  [ "$("embed_run/$program" run ma)" = "$expected" ] || fail "$program: $("embed_run/$program" run ma), and plumb sample: $expected"
  ! "embed_run/$program" none ma 2> none.out || fail "$program opened a run that is not there"
  grep -q "^none: is neither a run nor a checkpoint" none.out || fail "$program: $(cat none.out)"
done
echo "${programs[*]} continue a text like plumb sample"

# The library must not conflict with the host's own Abseil, protobuf or oneDNN.
! readelf -d embed_c/by_pkg_config | grep NEEDED | grep -vE 'libplumb\.so\.|libc\.so' || fail "what embed_c needs"
