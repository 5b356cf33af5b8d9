#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares norms with their peers: memcpy, plumb, oneDNN and, if it is installed, PyTorch.

All of them are interleaved within each round, so that other load on the machine affects them
equally; the ratios are medians of the ratios within rounds. Times are for whole passes over [rows,
dim] with affine parameters. "of memcpy" is the time of a memcpy that moves equally many bytes, in the
same ranges on the same threads, divided by the norm's time: 100 % is the speed of memory.

    norm_peers.py [--build build] [--rounds 31] [--shapes 8192x768,256x768] [--threads 1,2]
                  [--dtypes f32] [--norms layer_norm,rms_norm] [--json FILE]

PyTorch's RMSNorm is composed of its operations, because versions before 2.4 do not have one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# A thread that spins until the next region would take the processor from the other process; and
# PyTorch, which allocates its results, should find memory that is mapped already.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


class Served:
    """Runs the cases of `norm_benchmark --serve`."""

    def __init__(self, program, by):
        self.program, self.by = program, by

    def time(self, norm, direction, dtype, rows, dim, threads, runs):
        words = [self.by, norm, direction, dtype, rows, dim, threads, runs]
        self.program.stdin.write(" ".join(map(str, words)) + "\n")
        self.program.stdin.flush()
        answer = self.program.stdout.readline().strip()
        if not answer:
            sys.exit("norm_benchmark ended")
        return None if answer == "none" else float(answer)


class Torch:
    """Runs the same passes with PyTorch, without its autograd."""

    def __init__(self, torch):
        self.torch, self.cases = torch, {}

    def make(self, norm, direction, dtype, rows, dim):
        torch, native = self.torch, self.torch.ops.aten
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        x = torch.randn(rows, dim).to(kind)
        dy = torch.randn(rows, dim).to(kind)
        weight, bias = torch.ones(dim, dtype=kind), torch.zeros(dim, dtype=kind)
        if norm == "layer_norm":
            if direction == "forward":
                return lambda: native.native_layer_norm(x, [dim], weight, bias, 1e-5)
            _, mean, rstd = native.native_layer_norm(x, [dim], weight, bias, 1e-5)
            return lambda: native.native_layer_norm_backward(
                dy, x, [dim], mean, rstd, weight, bias, [True, True, True])

        def rms_norm():
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight

        def rms_norm_backward():
            h = x * r
            u = dy * weight
            dx = r * (u - h * (u * h).mean(-1, keepdim=True))
            return dx, (dy * h).sum(0)

        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return rms_norm if direction == "forward" else rms_norm_backward

    def time(self, norm, direction, dtype, rows, dim, threads, runs):
        key = norm, direction, dtype, rows, dim
        with self.torch.no_grad():
            try:
                if key not in self.cases:
                    self.cases[key] = self.make(*key)
                run = self.cases[key]
                self.torch.set_num_threads(threads)
                run()
            except RuntimeError:  # this version has no such kernel
                return None
            start = time.perf_counter_ns()
            for _ in range(runs):
                run()
            return (time.perf_counter_ns() - start) / runs


def median_ratio(over, under):
    """Returns the median over rounds of over / under, or None."""
    ratios = [a / b for a, b in zip(over, under) if a is not None and b is not None]
    return statistics.median(ratios) if ratios else None


def spread(times):
    """Returns half of the interquartile range, as a share of the median."""
    if len(times) < 4:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / 2 / middle


def measure(peers, case, rounds, runs):
    """Returns {peer: [nanoseconds per round]}; peers are interleaved in rotating order."""
    times = {name: [] for name in peers}
    names = list(peers)
    for i in range(rounds + 1):
        for name in names[i % len(names):] + names[: i % len(names)]:
            value = peers[name].time(*case, runs)
            if i > 0:  # the first round warms up
                times[name].append(value)
    return times


def show(value, text):
    return "-" if value is None else text.format(value)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--shapes", default="8192x768,256x768")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes", default="f32")
    parser.add_argument("--norms", default="layer_norm,rms_norm")
    parser.add_argument("--json", help="writes all times to this file")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.environ.update(ENVIRONMENT)
        os.execv(sys.executable, [sys.executable] + sys.argv)

    binary = os.path.join(args.build, "bin", "norm_benchmark")
    if not os.path.exists(binary):
        sys.exit(f"{binary} is not there: build the target norm_benchmark, or give --build")
    program = subprocess.Popen(
        [binary, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    peers = {by: Served(program, by) for by in ("memcpy", "plumb", "onednn")}
    versions = "PyTorch: not installed"
    try:
        import torch
        peers["torch"] = Torch(torch)
        versions = f"PyTorch {torch.__version__}"
    except ImportError:
        pass
    print(f"# {args.rounds} rounds; {versions}; load {os.getloadavg()[0]:.1f}; us are medians, "
          "+- half the quartile distance")
    head = f"{'norm':<11}{'pass':<9}{'type':<6}{'shape':<10}{'thr':>3}"
    for name in peers:
        head += f"{name + ' us':>16}"
    print(head + f"{'of memcpy':>11}{'x oneDNN':>10}{'x PyTorch':>10}")
    records = []
    for norm in args.norms.split(","):
        for direction in ("forward", "backward"):
            for dtype in args.dtypes.split(","):
                for shape in args.shapes.split(","):
                    rows, dim = map(int, shape.split("x"))
                    runs = max(1, (8 << 20) // (rows * dim))
                    for threads in map(int, args.threads.split(",")):
                        case = norm, direction, dtype, rows, dim, threads
                        times = measure(peers, case, args.rounds, runs)
                        line = f"{norm:<11}{direction:<9}{dtype:<6}{shape:<10}{threads:>3}"
                        for name in peers:
                            known = [t for t in times[name] if t is not None]
                            text = "-" if not known else (
                                f"{statistics.median(known) / 1e3:.1f} +-{spread(known):4.0%}")
                            line += f"{text:>16}"
                        share = median_ratio(times["memcpy"], times["plumb"])
                        onednn = median_ratio(times["onednn"], times["plumb"])
                        torch_ratio = median_ratio(times.get("torch", []), times["plumb"])
                        line += f"{show(share, '{:.0%}'):>11}{show(onednn, '{:.2f}'):>10}"
                        print(line + f"{show(torch_ratio, '{:.2f}'):>10}", flush=True)
                        records.append(dict(zip(
                            ("norm", "pass", "dtype", "rows", "dim", "threads"), case),
                            nanoseconds=times, of_memcpy=share, over_onednn=onednn,
                            over_torch=torch_ratio))
    program.stdin.close()
    program.wait()
    if args.json:
        with open(args.json, "w") as out:
            json.dump(records, out, indent=1)


if __name__ == "__main__":
    main()
