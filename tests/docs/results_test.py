#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that measurements of a new processor become an entry of results.json and a part of the
pages, that existing ones are kept, and that a second run changes nothing. Uses invented numbers in
a scratch directory.

    results_test.py SOURCE_DIRECTORY
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

SPREAD = {"median": 0.01, "p10": 0.009, "p90": 0.011}


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def measurements(out):
    """Writes the files that measure_all.sh creates."""
    write(f"{out}/machine.json", {
        "version": ["plumb 0.1.0, oneDNN 2.6.3, kernels AVX2",
                    "products: oneDNN 2.6.3 avx2; kernels AVX2; AcmeChips family 7 model 3; no bf16"],
        "processors": 4, "memory_bytes": 8 << 30, "system": "Debian"})
    summary = {"plumb": [1e-4] * 3, "theirs": [2e-4] * 3, "ratio": [2, 1.9, 2.1], "rate": 100, "their_rate": 50,
               "flops": 1e9, "share": 0.5, "their_share": None}
    pair = {"model": "baby", "title": "baby GPT 8 x 256", "dtype": "f32", "task": "train", "summary": summary,
            "peer": "Peer 1", "memory": {"plumb": 1 << 20, "peer": 1 << 30}, "rounds": [{}, {}]}
    write(f"{out}/training.json", [
        pair, dict(pair, peer="Peer 2", summary=dict(summary, plumb=[3e-4] * 3, ratio=[0.7, 0.6, 0.8])),
        dict(pair, task="decode", title="GPT-2 124M, decoding 128", peer="Peer 3")])
    seeds = {"seeds": 20, "peer": "Peer 4", "plumb_wall": 1.0, "plumb_cpu": 2.0, "wall": 9.0, "cpu": 11.0,
             "training_wall": 7.0, "training_cpu": 8.0}
    write(f"{out}/studies.json", {"rows": [seeds], "step": {"plumb": 4e-5, "loop": 3e-5}})
    with open(f"{out}/gemm.txt", "w", encoding="utf-8") as file:
        file.write("engine\nf32, 2 threads: GFLOP/s\n"
                   "  narrow T=16 q fwd auto   10.0 small   15.0   auto/best 1.50\n"
                   "  narrow T=16 q dX  auto   10.0 small    5.0   auto/best 1.00\n"
                   "  narrow T=16 q dW  auto   10.0 small    5.0   auto/best 1.00\n")
    predicted = {str(cores): {"seconds": 0.1, "matmul": 0.05, "others": 0.05} for cores in (2, 8, 64)}
    write(f"{out}/more_cores.json", [
        {"title": "GPT", "dtype": "f32", "measured": [0.2, 0.1], "tasks": 4.0, "predicted": predicted}])
    run = {"pass": "decode", "shape": "1 x 128", "dtype": "f32", "seconds": SPREAD, "tokens_per_second": SPREAD,
           "rate": SPREAD, "rate_unit": "bytes/s", "machine": None, "share": None, "peak_memory_bytes": None}
    write(f"{out}/sampling/1.json", {"passes": [run, {"pass": "decode", "problem": "too large"}]})
    row = {"name": "matmul", "in_graph": True, "seconds": 1.0}
    write(f"{out}/profile/1.json", {"passes": [dict(run, profile={
        "steps": 10, "rows": [row, dict(row, name="optimizer", in_graph=False, seconds=0.001)]})]})
    write(f"{out}/placements.json", {
        "placements": [{"placement": "none", "step": [1, 1, 1], "norms": 0, "rest_over_none": [1, 1, 1]}],
        "plugin": {"ratio": [1.01, 1, 1.02]}})
    write(f"{out}/scaling/depth.json", [
        {"depth": 4, "dtype": "f32", "seconds": [0.5, 0.4, 0.6], "tokens": 512, "floor": None}])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = os.path.realpath(sys.argv[1])
    shown = ["README.md", "docs/performance/results.md"]

    def script(name, *arguments):
        subprocess.run([sys.executable, "-B", os.path.join(source, "bench", name), *arguments], check=True)

    with tempfile.TemporaryDirectory() as directory:
        results, out = os.path.join(directory, "results.json"), os.path.join(directory, "out")
        shutil.copyfile(os.path.join(source, "docs/performance/results.json"), results)
        with open(results, encoding="utf-8") as file:
            before = json.load(file)["processors"]
        measurements(out)
        script("record_results.py", "record", out, results)
        with open(results, encoding="utf-8") as file:
            after = json.load(file)["processors"]
        assert {key: after[key] for key in before} == before, "what was there has changed"
        assert list(after)[len(before):] == ["acmechips-family-7-model-3"], list(after)
        script("record_results.py", "record", out, results, "--processor", "Acme One")
        pages = []
        for page in shown:
            pages.append(shutil.copyfile(os.path.join(source, page),
                                         os.path.join(directory, page.replace("/", "-"))))
        script("fill_page.py", results, *pages)
        script("fill_page.py", "--check", results, *pages)
        phrases = {"README.md": ["| Acme One (Peer 1, Peer 2) |", "| 300 µs, 0.70 x |",
                                 "| Acme One | 20 seeds, 1,000 steps each | 2.0 s | Peer 4 | 8.0 s | 4.00 |",
                                 "| Acme One | a step, 1 thread | 40 µs | C++ loop | 30 µs | 0.75 |"],
                   "docs/performance/results.md": [
                       "### Acme One: time of a training step",
                       "| 20 seeds | Peer 4, the whole process | 1.00 s | 9.00 s | 2.00 s | 11.00 s | 5.50 |",
                       "| narrow T=16 q | f32 | 10 | 10 | 10 | fwd: small, 1.50 |",
                       "| GPT | f32 | 4 | 200 ms | 100 ms | 100 ms, 2.0 x | 100 ms, 2.0 x | 100 ms, 2.0 x | 50 % |",
                       "| Acme One | Peer 3 | GPT-2 124M, decoding 128, f32 | 100 tokens/s |"]}
        for page, name in zip(pages, shown):
            with open(page, encoding="utf-8") as file:
                text = file.read()
            for phrase in phrases[name]:
                assert phrase in text, f"{page} has no {phrase}"
    print("recorded, filled, filled again")


if __name__ == "__main__":
    main()
