#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that `plumb plugin new` writes a project that builds without warnings with the installed plumb, with
# CMake and make, gcc and clang, passes every check, and trains in a model.
#   project_builds.sh BUILD_DIRECTORY
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
cd "$work"
printf '%s\n' anna emma hannah lena lina marie mia nora paula sophia > words.txt

tried=0
for compiler in gcc clang; do
  if ! command -v "$compiler" > /dev/null; then
    echo "$compiler is not installed: not tried" >&2
    continue
  fi
  tried=$((tried + 1))
  for tool in cmake make; do
    name="${tool}_by_$compiler"
    plumb plugin new "$name" --id "org.example.of.$name"
    if [ "$tool" = cmake ]; then
      CC=$compiler CFLAGS="-Werror -pedantic" cmake -S "$name" -B "$name/build" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCHECKFLAGS=--quick > cmake.log
      cmake --build "$name/build"
      ctest --test-dir "$name/build" --output-on-failure --no-tests=error
      file="$name/build/$name.so"
    else
      make -C "$name" PLUMB="$prefix" CC="$compiler" CFLAGS="-O3 -Werror -pedantic" CHECKFLAGS=--quick check | tee check.log
      plumb docs first-norm > page.txt
      grep -F "$(grep -oE '[0-9]+ checks: [0-9]+ passed, 2 skipped' page.txt)" check.log
      file="$name/$name.so"
    fi
    plumb train "$name/model.pbtxt" --data words.txt --plugin "$file" --out "$name/run" \
      --set train.max_steps=20
    # An explicit prefix installs into another directory.
    if [ "$tool" = cmake ]; then
      cmake --install "$name/build" --prefix "$work/elsewhere"
      [ -n "$(find "$work/elsewhere" -name "$name.so")" ]
      [ -z "$(find "$prefix" -name "$name.so")" ]
    fi
    # The installed norm is found by its id, and its library exports only the entry point.
    if [ "$tool" = cmake ]; then cmake --install "$name/build"; else make -C "$name" PLUMB="$prefix" install; fi
    plumb plugin describe "org.example.of.$name" | grep -F "$(realpath "$prefix")"
    [ "$(nm -D --defined-only "$file" | awk '{print $3}')" = plumb_norm_plugin_v1 ]
  done
done
[ "$tried" -gt 0 ]

# All builds are one norm, so builds by the same compiler must have the same losses.
for compiler in gcc clang; do
  [ -d "cmake_by_$compiler" ] || continue
  for tool in cmake make; do
    cut -d, -f1-5,7 "${tool}_by_$compiler/run/metrics.csv" > "$tool.losses"
  done
  cmp cmake.losses make.losses
done
