#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds plumb for 64-bit ARM on Debian 12 or 13 (x86-64), and tests it under QEMU: the label fast, and what
# PLUMB_AARCH64_TESTS names, a pattern of ctest; trains, resumes and samples a model. Needs root, to install packages and
# to register QEMU for programs of ARM.
#
#   tests/aarch64.sh [BUILD_DIRECTORY]     build/aarch64
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/aarch64}
tests=${PLUMB_AARCH64_TESTS:-^(train_bits_test|check_shipped_norms_test|zoo_lora)$}
# Python and compilers here are of this processor, and QEMU ignores limits of the address space. A call may leave the flag of
# inexact results raised on ARM. The products that measure a processor's speed take most of an hour under QEMU. oneDNN 3
# says on stderr that this processor has no MIDR_EL1, and these two tests want it empty.
other='^(python_|docs_|clang_format|shellcheck|spdx_lines|includes_go_one_way|capi_headers)'
limits='MemoryTest.TheLimitOfTheAddressSpaceCounts:OneDnnMemoryTest.*:DoctorTest.ReportsAMemoryLimit'
export GTEST_FILTER="-$limits:HostTest.KeepsTheHostsFloatingPointMode:ReportTest.ARuntimeMeasuresItsSpeed"
GTEST_FILTER+=:DoctorTest.ReportsTheMachine:TrainTest.ProgressInAFileIsPlainLines

tools/install_dependencies.sh aarch64
binfmt=/proc/sys/fs/binfmt_misc
[ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt
if [ ! -e $binfmt/qemu-aarch64 ]; then
  # Programs of ELF for ARM (machine 0xb7) are run by QEMU, which the kernel opens now (F), so that chroots have it too.
  magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  printf '%s' ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" > $binfmt/register
fi

cmake -S . -B "$build" -G Ninja --toolchain cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release -DPLUMB_QUICK=ON -DPLUMB_UNITY=ON \
  -DPLUMB_MPI=OFF -DPLUMB_BUILD_TESTS=ON -DPLUMB_BUILD_BENCH=OFF -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
cmake --build "$build"
plumb=$(realpath "$build/bin/plumb")
"$plumb" --version

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
study=examples/why_normalise
train() {
  "$plumb" train $study/pre.pbtxt --data examples/data/names.txt --train $study/train.pbtxt --set train.max_steps=60 --quiet "$@" > /dev/null
}
train --out "$work/whole"
train --out "$work/half" --stop-at 30
"$plumb" train --resume --out "$work/half" --data examples/data/names.txt --quiet > /dev/null
cmp "$work"/{whole,half}/checkpoints/step-000060/model.safetensors
echo "a run that was resumed has the bits of one that was not"
for weights in f32 bf16 int8; do "$plumb" sample "$work/whole" --num 3 --weights $weights; done

run_tests() { # Under QEMU a test takes up to 200 times as long.
  ctest --test-dir "$build" --parallel "${CTEST_PARALLEL_LEVEL:-$(nproc)}" --timeout 14400 --output-on-failure "$@" || failed=1
}
run_tests --label-regex '^fast$' --label-exclude '^release$' --exclude-regex "$other"
run_tests --tests-regex "$tests"
exit "${failed:-0}"
