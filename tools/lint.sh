#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy on the sources of runtime, cli and plugins with the checks of .clang-tidy, and prints its
# findings. A module is checked at once, as the preset `quick` compiles it (PLUMB_UNITY), because headers take most
# of the time: about 20 minutes of a processor. Exit code 1: there are findings. The tests shellcheck and
# clang_format are quick and part of ctest.
#
#   tools/lint.sh [--build DIR] [PATTERN...]      PATTERN: part of a module's path, such as runtime/spec or cli
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/quick
if [ "${1:-}" = --build ]; then build=$2; shift 2; fi
command -v clang-tidy > /dev/null || { echo "lint: clang-tidy is not installed (tools/install_dependencies.sh test)" >&2; exit 2; }
[ -s "$build/compile_commands.json" ] || { echo "lint: $build is not built (tools/build.sh quick)" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# clang-tidy checks a source once for each of its commands, and norms are compiled again for tests, so only the first
# command of a source is kept.
python3 - "$build/compile_commands.json" > "$scratch/compile_commands.json" << 'END'
import json, sys
first = {}
for command in json.load(open(sys.argv[1])):
    first.setdefault(command["file"], command)
json.dump(list(first.values()), sys.stdout, indent=0)
END

# Generated sources, tests, benchmarks and examples are omitted.
mapfile -t files < <(sed -n 's/^"file": "\(.*\)",\{0,1\}$/\1/p' "$scratch/compile_commands.json" | sort |
  grep -E '/(runtime|cli|plugins)/' | grep -vE '\.schema\.cc$|/page\.cc$|/build_tree\.cc$' |
  grep -vE '/(tests|bench|examples|template)/' | grep -E "$(IFS='|'; echo "${*:-.}")")
[ ${#files[@]} -gt 0 ] || { echo "lint: no source matches $*" >&2; exit 2; }
status=0
# A module's file includes its sources, which therefore count as headers.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$scratch" --quiet --warnings-as-errors='*' --checks=-bugprone-suspicious-include,-google-global-names-in-headers \
  --header-filter='/(runtime|cli|plugins)/.*\.(h|cc)$' > "$scratch/log" 2> /dev/null || status=1
grep -vE '^$' "$scratch/log" || true
echo "${#files[@]} sources"
exit $status
