#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the projects of `plumb plugin new` in every language with an installed plumb: runs all commands of the
# README of each, in their order, without a network. Their norms pass every check, and the same model has nearly
# the same losses with each. Without cargo the project in Rust is not tried.
#   template_readmes.sh BUILD_DIRECTORY
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
unset CXXFLAGS CXX
# The READMEs have no --quick, and no directory of an unusual installation.
export CMAKE_PREFIX_PATH="$prefix" CHECKFLAGS=--quick CARGO_NET_OFFLINE=true
cd "$work"
fail() { echo "FAILED: $*" >&2; exit 1; }

languages="c c++"
if cargo --version > /dev/null 2>&1; then
  languages="$languages rust"
else
  echo "cargo is not installed: the project in Rust is not tried" >&2
fi
for language in $languages; do
  name=ridge_${language//+/p}
  plumb plugin new "$name" --id "org.example.of.$name" --lang "$language" > created.out
  grep -q "^next: cd $name && " created.out || fail "$(cat created.out)"
  [ "$(grep -rIl my_norm "$name")" = "" ] || fail "$name still names my_norm"
  printf '%s\n' anna emma hannah lena lina marie mia nora paula sophia > "$name/names.txt"
  sed -n 's/^    //p' "$name/README.md" > commands.sh
  case $language in
    c) expected='^cc |^make check$|^cmake -B build$|^plumb plugin check \./' ;;
    c++) expected='^c\+\+ |^cmake -B build$|^ctest |^plumb plugin check \./' ;;
    rust) expected='^cargo build --release$|^plumb plugin check target/|^install |^plumb train ' ;;
  esac
  [ "$(grep -cE "$expected" commands.sh)" = 4 ] || fail "the README of $name lacks commands: $(cat commands.sh)"
  sed -i -e 's/plugin check /&--quick /' -e 's/^cmake -B build/& -DCHECKFLAGS=--quick/' commands.sh
  (cd "$name" && CFLAGS="-O3 -Werror -pedantic" CXXFLAGS="-Werror -pedantic" RUSTFLAGS="-D warnings" \
    bash -euxo pipefail ../commands.sh < /dev/null) > "$name.out" 2>&1 || { cat "$name.out"; fail "$name"; }
  # A check may warn of times on a busy machine.
  grep -qE '[0-9]+ checks: [0-9]+ passed, 2 skipped' "$name.out" || fail "$(cat "$name.out")"
  plumb plugin list | grep "^org.example.of.$name *$prefix" > list.out || fail "$name is not installed"
  tail -n +2 "$name/run/metrics.csv" | cut -d, -f2 > "$name.losses"
  [ "$(wc -l < "$name.losses")" -gt 10 ] || fail "$name was not trained"
  paste ridge_c.losses "$name.losses" | awk -v n="$name" '
    { d = $1 - $2; if (d < 0) d = -d; if (d > 0.02) { print n ", step " NR ": " $2 ", not " $1; exit 1 } }' ||
    fail "other losses than in C"
  files="$(find "$name" -maxdepth 1 -type f)"
  [ "$(grep -c "\.so$" <<< "$files")" = "$([ "$language" = rust ] && echo 0 || echo 1)" ] || fail "$files"
done

! plumb plugin new other --lang fortran 2> wrong.out || fail "a language without a template is no error"
grep -q 'is not one of c, c++, rust' wrong.out || fail "$(cat wrong.out)"
[ ! -e other ] || fail "a refused project left a directory"
