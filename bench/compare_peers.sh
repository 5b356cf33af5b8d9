#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the peers of plumb from PyPI into BUILD/peers, and measures each of them interleaved with plumb:
# PyTorch (eager, and the whole step compiled), JAX, llm.c on training models, llama.cpp on prompts and
# decoding, and a loop written by hand for the smallest model (peer_loop.cc). Prints times, ratios with their
# spread, GFLOP/s, shares of the machine's GEMM peak, and peak memory.
#
#   bench/compare_peers.sh [--quick] [--rounds N] [--dtypes f32,bf16,int8] [--markdown] [--json FILE]
#                          [--only study,shakespeare,baby,gpt2-64,gpt2-1024,prompt,decode,decode-8]
#        compare_peers.sh --seeds 20,100 [--rounds N] [--json FILE]
#                          [--peers torch,torch-compiled,jax,llm.c,loop,llama.cpp]
#
# The second form compares a whole study with JAX, which trains all seeds in one compiled program, and a step with the
# loop (compare_study.py).
#
# --only gpt2-8192 or delta-64,delta-1024,delta-8192 measures a long context, or gated DeltaNet in place of
# attention, next to transformers' implementation (TORCH_PYTHON needs transformers 5).
#
# BUILD: the build directory, with the target plumb_shared (default: build/release).
# PYTHON: the python3 of the peers (default: python3). The newest JAX needs a recent one.
# TORCH_PYTHON: interpreters whose PyTorch is measured, separated by spaces. Default: that of BUILD/peers, and
# /usr/bin/python3 if it has one (python3-torch, another build). PyPI's PyTorch for x86 includes 5 GB for GPUs;
# pip's own variables, such as PIP_EXTRA_INDEX_URL, can name an index of smaller ones.
# CXX: the compiler of the loop (default: c++).
# LLM_C: llm.c's program train_gpt2, which no registry of packages has (make train_gpt2 in a clone of it).
# llama.cpp is compiled for this processor, from llama-cpp-python's sources: about ten minutes, once.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${BUILD:-$here/../build/release}
if [ ! -e "$build/lib/libplumb.so" ]; then
  echo "$build/lib/libplumb.so is not there: build the target plumb_shared, or set BUILD" >&2
  exit 2
fi
peers=$build/peers
by_seeds=
[ "${1:-}" != --seeds ] || by_seeds=1
# True if --peers names one of these, or is not an option.
wanted() { # PEER..
  local before='' argument peer
  for argument in "${arguments[@]}"; do
    if [ "$before" = --peers ]; then
      for peer in "$@"; do
        case ",$argument," in *",$peer,"*) return 0 ;; esac
      done
      return 1
    fi
    before=$argument
  done
}
arguments=("$@")
[ -x "$peers/bin/python" ] || "${PYTHON:-python3}" -m venv "$peers"

# Installs the newest version, unless the module is there. A peer that cannot be installed is not measured.
install() { # MODULE PACKAGE..
  "$peers/bin/python" -c "import $1" 2> /dev/null && return
  echo "installing ${*:2}" >&2
  "$peers/bin/pip" install --quiet "${@:2}" >&2 || echo "not installed: ${*:2}" >&2
}
install numpy numpy
[ -n "$by_seeds" ] || ! wanted torch torch-compiled || [ -n "${TORCH_PYTHON:-}" ] || install torch torch
if wanted jax; then install jax jax; fi
if [ -z "$by_seeds" ] && wanted llama.cpp; then
  install gguf gguf
  CMAKE_ARGS="-DGGML_NATIVE=ON ${CMAKE_ARGS:-}" install llama_cpp --no-binary llama-cpp-python llama-cpp-python
fi

options=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for candidate in ${TORCH_PYTHON:-"$peers/bin/python" /usr/bin/python3}; do
  [ -z "$by_seeds" ] || break
  wanted torch torch-compiled || break
  "$candidate" -c 'import torch' 2> /dev/null || continue
  # A different BLAS helps only a PyTorch that calls an external one (as Debian's does).
  if "$candidate" -c 'import sys, torch; sys.exit("BLAS_INFO=generic" not in torch.__config__.show())'; then
    "${CC:-cc}" -O2 -shared -fPIC "$here/peer_sgemm.c" -o "$work/libpeer_sgemm.so" -ldnnl
    candidate="$candidate=$work/libpeer_sgemm.so"
  fi
  options+=(--torch "$candidate")
done
if wanted loop && "${CXX:-c++}" -std=c++17 -O3 -march=native -ffast-math -shared -fPIC "$here/peer_loop.cc" \
  -o "$work/libpeer_loop.so"; then
  options+=(--loop "$work/libpeer_loop.so")
fi
if [ -n "$by_seeds" ]; then
  "$peers/bin/python" -B "$here/compare_study.py" "${options[@]}" "$@" "$build/bin/plumb" "$peers/bin/python"
  exit
fi
[ -z "${LLM_C:-}" ] || options+=(--llm-c "$LLM_C")
"$peers/bin/python" -B "$here/compare_peers.py" --build "$build" --python "$peers/bin/python" "${options[@]}" "$@"
