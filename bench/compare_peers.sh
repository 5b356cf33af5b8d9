#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures plumb and PyTorch, interleaved in one run, on five training models; prints times, ratios with
# their spread, GFLOP/s, shares of the machine's GEMM peak, and peak memory.
#
#   bench/compare_peers.sh [--quick] [--rounds N] [--only study,shakespeare,baby,gpt2-64,gpt2-1024]
#                          [--dtypes f32,bf16] [--markdown] [--json FILE]
#
# --only gpt2-8192 or delta-64,delta-1024,delta-8192 measures a long context, or gated DeltaNet in place of
# attention, next to transformers' implementation (TORCH_PYTHON needs transformers 5).
#
# BUILD: the build directory, with the target step_server (default: build/release).
# TORCH_PYTHON: a python3 that has PyTorch (default: the first of python3 and /usr/bin/python3).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${BUILD:-$here/../build/release}
if [ ! -x "$build/bin/step_server" ]; then
  echo "$build/bin/step_server is not there: build the target step_server, or set BUILD" >&2
  exit 2
fi
python=
for candidate in ${TORCH_PYTHON:-python3 /usr/bin/python3}; do
  if "$candidate" -c 'import torch' 2> /dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "no python3 with PyTorch: install python3-torch, or set TORCH_PYTHON" >&2
  exit 2
fi
# A different BLAS helps only a PyTorch that calls an external one (as Debian's does).
sgemm=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if "$python" -c 'import sys, torch; sys.exit("BLAS_INFO=generic" not in torch.__config__.show())'; then
  "${CC:-cc}" -O2 -shared -fPIC "$here/peer_sgemm.c" -o "$work/libpeer_sgemm.so" -ldnnl
  sgemm=(--sgemm "$work/libpeer_sgemm.so")
fi
"$python" -B "$here/compare_peers.py" --build "$build" --python "$python" "${sgemm[@]}" "$@"
