#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures a training step of 2 and 4 ranks over links of several rates and delays: predicted from the measured link,
# and measured by plumb bench with one host per rank. The hosts are network namespaces of this machine, so ranks share
# its processors with the program that delays the links. Then compares two ranks of one thread with one rank of two
# threads, and PyTorch's DistributedDataParallel, if available (PLUMB_PYTHON_TORCH, /usr/bin/python3), with two ranks.
# Requires root and Open MPI.
#
#   bench/ranks_links.sh [BUILD_DIRECTORY [OPTIONS OF plumb bench]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(realpath "${1:-build/release}")
shift || true
root=$PWD
plumb=$build/bin/plumb
PLUMB_MPI_LIBRARY=$build/lib/plumb/libplumb-mpi.so
export PLUMB_MPI_LIBRARY
# shellcheck source=tests/ranks/mpi.sh
. "$root/tests/ranks/mpi.sh"
# shellcheck source=tests/ranks/hosts.sh
. "$root/tests/ranks/hosts.sh"
bench=(bench "$root/examples/shakespeare/model.pbtxt" --vocab 65 --batch 16 --rounds 9 --json "$@")
results=$(mktemp -d)
trap 'remove_hosts; rm -rf "$results"' EXIT

show() { # WHAT < JSON
  python3 -c '
import json, sys
report = json.load(sys.stdin)
row = [each for each in report["ranks"] if "measured" in each][0]
measured = row["measured"]["median"]
print("%-24s %d ranks: predicted %8.2f ms, measured %8.2f ms, quotient %.2f" % (
    sys.argv[1], row["ranks"], row["seconds"] * 1e3, measured * 1e3, row["seconds"] / measured))' "$1"
}

for link in "1e9 0.0001 1Gbit,100us" "2e8 0.001 200Mbit,1ms" "5e7 0.0005 50Mbit,500us"; do
  read -r rate delay name <<< "$link"
  make_hosts 4 "$build/tests/ranks/slow_link" "$rate" "$delay"
  for ranks in 2 4; do
    # shellcheck disable=SC2046
    launch_on $(seq 1 $ranks)
    "${launch_hosts[@]}" -x PLUMB_MPI_LIBRARY -n $ranks "$plumb" "${bench[@]}" --threads 1 > "$results/json"
    show "$name" < "$results/json"
  done
  remove_hosts
  n_hosts=0
  hosts_cables=()
  hosts_scratch=$(mktemp -d)
done

# The runs are interleaved, so that all have the same load on the machine.
python=${PLUMB_PYTHON_TORCH:-/usr/bin/python3}
torch=()
if "$python" -c 'import torch.distributed' 2> /dev/null; then
  torch=(env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive)
  # A PyTorch that calls an external BLAS gets oneDNN's, as in compare_peers.sh.
  if "$python" -c 'import sys, torch; sys.exit("BLAS_INFO=generic" not in torch.__config__.show())'; then
    "${CC:-cc}" -O2 -shared -fPIC bench/peer_sgemm.c -o "$results/libpeer_sgemm.so" -ldnnl
    torch+=("LD_PRELOAD=$results/libpeer_sgemm.so")
  fi
fi
for round in 1 2 3 4 5; do
  "${launch[@]}" -n 2 "$plumb" "${bench[@]}" --threads 1 --fixed-batch --set train.units=2 > "$results/two$round"
  "$plumb" "${bench[@]}" --only train --threads 2 --set train.units=2 > "$results/one$round"
  [ ${#torch[@]} = 0 ] ||
    "${torch[@]}" "$python" bench/torch_ddp.py 2 --n_layer 4 --n_head 4 --d_model 128 --vocab 65 --context 64 --batch 8 \
      --threads 1 --tied --clip > "$results/ddp$round"
done
python3 - "$results" << 'END'
import json, pathlib, statistics, sys
results = pathlib.Path(sys.argv[1])


def say(what, quotients):
    print(f"{what}: {statistics.median(quotients):.3f} ({min(quotients):.3f} to {max(quotients):.3f})")


rounds = range(1, 6)
two = [json.loads((results / f"two{i}").read_text())["ranks"][0]["measured"]["median"] for i in rounds]
one = [json.loads((results / f"one{i}").read_text())["passes"][0]["seconds"]["median"] for i in rounds]
say("2 ranks x 1 thread / 1 rank x 2 threads", [a / b for a, b in zip(two, one)])
if (results / "ddp1").exists():
    ddp = [float((results / f"ddp{i}").read_text()) for i in rounds]
    say("2 ranks of PyTorch DistributedDataParallel (gloo) / 2 ranks", [a / b for a, b in zip(ddp, two)])
END
