#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers (clang with the address and undefined-behaviour sanitizers) and runs each:
#
#   tests/fuzz/run.sh                        ten seconds each
#   tests/fuzz/run.sh --seconds 3600         an hour each
#   tests/fuzz/run.sh --seconds 600 model    only one target
#   tests/fuzz/run.sh --merge                adds the inputs that reached new code to the corpus
#
# One fuzzer runs per processor. Failing inputs are stored in build/fuzz/findings, and
# the log has the command that repeats them. Inputs that reach new code are stored in build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=10
merge=
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds)
      seconds=${2:?--seconds N}
      shift
      ;;
    --merge) merge=yes ;;
    -*)
      echo "usage: run.sh [--seconds N] [--merge] [TARGET...]" >&2
      exit 2
      ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if [ ${#targets[@]} = 0 ]; then
  for file in tests/fuzz/*_fuzzer.cc; do targets+=("$(basename "$file" _fuzzer.cc)"); done
fi

tools/install_dependencies.sh fuzz
cmake --preset fuzz > /dev/null
cmake --build build/fuzz --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" --target "${targets[@]/#/fuzz_}"

# Prints the folders of a target's seeds. Models and recipes of the tree seed the targets that read such
# texts.
seeds() {
  case $1 in
    model) echo tests/fuzz/corpus/model build/fuzz/seeds/model ;;
    recipe) echo tests/fuzz/corpus/recipe build/fuzz/seeds/recipe ;;
    textproto) echo tests/fuzz/corpus/textproto build/fuzz/seeds/model build/fuzz/seeds/recipe ;;
    *) echo "tests/fuzz/corpus/$1" ;;
  esac
}
rm -rf build/fuzz/seeds
mkdir -p build/fuzz/seeds/model build/fuzz/seeds/recipe build/fuzz/findings
awk '/^# case / { file = "build/fuzz/seeds/model/golden-" $3 ".pbtxt"; next } { print > file }' \
  tests/golden/models.txt
for file in examples/*/*.pbtxt; do
  case $file in
    */train.pbtxt | */study.pbtxt) kind=recipe ;;
    *) kind=model ;;
  esac
  cp "$file" "build/fuzz/seeds/$kind/$(dirname "$file" | tr / -)-$(basename "$file")"
done

if [ -n "$merge" ]; then
  for target in "${targets[@]}"; do
    mkdir -p "build/fuzz/merged/$target"
    # shellcheck disable=SC2046  # the folders have no spaces
    build/fuzz/fuzz/"fuzz_$target" -merge=1 -max_len=2048 "build/fuzz/merged/$target" \
      $(seeds "$target") "build/fuzz/corpus/$target" > "build/fuzz/$target.log" 2>&1
    rm -rf "tests/fuzz/corpus/$target"
    mv "build/fuzz/merged/$target" "tests/fuzz/corpus/$target"
    echo "$target: $(find "tests/fuzz/corpus/$target" -type f | wc -l) inputs"
  done
  exit
fi

run_one() {
  local target=$1 log=build/fuzz/$1.log dict=()
  case $target in model | recipe | formula | textproto) dict=(-dict=tests/fuzz/text.dict) ;; esac
  mkdir -p "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target"
  local status=0
  # shellcheck disable=SC2046
  build/fuzz/fuzz/"fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 \
    -print_final_stats=1 "${dict[@]}" -artifact_prefix="build/fuzz/findings/$target-" \
    "build/fuzz/corpus/$target" $(seeds "$target") > "$log" 2>&1 || status=$?
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ $status != 0 ]; then
    grep -E 'ERROR|runtime error|check failed|Test unit written' "$log" | head -5
    echo "$target: FAILED after ${runs:-some} runs: $log"
    return 255  # ends xargs before the next target
  fi
  echo "$target: $runs runs in $seconds s, nothing found"
}
export -f run_one seeds
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'
