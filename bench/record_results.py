#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records measurements in the file that the pages are filled from: docs/performance/results.json, an
object by processor. A section that is measured again replaces the old one; others stay.

    record_results.py machine PLUMB                            prints the system as JSON
    record_results.py record OUT RESULTS.json [--processor NAME]

OUT is the directory of measure_all.sh. NAME is the heading in the pages; the default is derived from
the processor that `plumb --version` prints.
"""
import argparse
import json
import os
import re
import subprocess
import sys

# Names of Intel's family 6 by model.
INTEL = {85: "Intel Skylake-SP", 106: "Intel Ice Lake-SP", 143: "Intel Sapphire Rapids",
         173: "Intel Granite Rapids", 174: "Intel Granite Rapids", 207: "Intel Emerald Rapids"}


def processor_name(version):
    """Returns the common name of the processor, from the text of `plumb --version`."""
    found = re.search(r"(\w+) family (\d+) model (\d+)", version)
    if not found:
        return "unknown processor"
    vendor, family, model = found[1], int(found[2]), int(found[3])
    avx512 = "kernels AVX3" in version
    if vendor == "AuthenticAMD" and family >= 25:
        return "AMD Zen 5" if family == 26 else "AMD Zen 4" if avx512 else "AMD Zen 3"
    if vendor == "GenuineIntel" and family == 6 and model in INTEL:
        return INTEL[model]
    return found[0]


def key_of(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def machine(plumb):
    version = subprocess.run([plumb, "--version"], check=True, capture_output=True, text=True).stdout
    system = "Linux"
    if os.path.exists("/etc/os-release"):
        with open("/etc/os-release") as file:
            system = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line).get(
                "PRETTY_NAME", "Linux").strip('"')
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"version": version.strip().split("\n"), "processors": len(os.sched_getaffinity(0)),
            "memory_bytes": memory, "system": system}


def rounded(value):
    """Rounds to four digits, which is more than the accuracy of any of these figures."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return value


def load(*path):
    name = os.path.join(*path)
    if not os.path.exists(name):
        return None
    with open(name) as file:
        return json.load(file)


def training(records):
    return {"rows": [
        {"model": r["model"], "title": r["title"], "dtype": r["dtype"], "peer": r["peer"],
         "plumb": r["summary"]["plumb"][0], "theirs": r["summary"]["theirs"][0],
         "ratio": r["summary"]["ratio"], "flops": r["summary"]["flops"],
         "share": r["summary"]["share"], "their_share": r["summary"]["their_share"],
         "memory": r["memory"]["plumb"], "their_memory": r["memory"]["peer"]}
        for r in records if r["task"] == "train"]}


def sessions(records):
    """Returns prompts and decoding next to other programs."""
    rate = lambda value: f"{value:,.0f} tokens/s"
    return {"rows": [
        {"peer": r["peer"], "what": f"{r['title']}, {r['dtype']}" + ("; Q8_0" if r["dtype"] == "int8" else ""),
         "plumb": rate(r["summary"]["rate"]), "theirs": rate(r["summary"]["their_rate"]),
         "ratio": "{:.2f} ({:.2f} .. {:.2f})".format(*r["summary"]["ratio"]),
         "how": f"{len(r['rounds'])} interleaved rounds, equal weights"} for r in records if r["task"] != "train"]}


def gemm(path):
    """Returns the table of gemm_benchmark: GFLOP/s by engine, and the time of the plan's choice over the best."""
    rows, dtype = [], None
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        head = re.match(r"(\w+), \d+ threads?: GFLOP/s", line)
        found = re.match(r"  (.+?) (fwd|dX|dW) +(\S.*\S) +auto/best ([\d.]+)$", line)
        if head:
            dtype = head[1]
        elif found:
            engines = {name: float(rate) for name, rate in re.findall(r"(\w+) +([\d.]+)", found[3])}
            rows.append({"layer": found[1], "product": found[2], "dtype": dtype, "engines": engines,
                         "over_best": float(found[4])})
    return {"engines": lines[0], "rows": rows}


def spread_of(series):
    return [series["median"], series["p10"], series["p90"]]


def sampling(directory):
    rows = []
    for name in sorted(os.listdir(directory)):
        for p in load(directory, name)["passes"]:
            if "problem" in p:
                continue
            rows.append({"pass": f"{p['pass']} {p['shape']}", "dtype": p["dtype"],
                         "seconds": spread_of(p["seconds"]),
                         "tokens": p["tokens_per_second"]["median"], "rate": p["rate"]["median"],
                         "unit": "GB/s" if p["rate_unit"] == "bytes/s" else "GFLOP/s",
                         "share": p["share"]["median"] if p["share"] else None,
                         "machine": p["machine"]["median"] if p["machine"] else None,
                         "memory": p["peak_memory_bytes"]})
    return {"rows": rows}


def profile(directory):
    """Returns the milliseconds of a step by op, one column per shape and type."""
    columns = []
    for name in sorted(os.listdir(directory)):
        for p in load(directory, name)["passes"]:
            steps = p["profile"]["steps"]
            columns.append({"title": f"{p['shape']} {p['dtype']}", "ms": {
                (row["name"] if row["in_graph"] else f"({row['name']})"): 1e3 * row["seconds"] / steps
                for row in p["profile"]["rows"]}})
    return {"columns": columns}


def scaling(directory):
    return {"tables": {name[:-5]: [
        {"at": point[name[:-5]], "dtype": point["dtype"],
         "microseconds": 1e6 * point["seconds"][0] / point["tokens"],
         "floor": 1e6 * point["floor"] / point["tokens"] if point["floor"] else None}
        for point in load(directory, name)]
        for name in sorted(os.listdir(directory)) if name.endswith(".json")}}


def record(out, results_path, name):
    machine_is = load(out, "machine.json")
    name = name or processor_name("\n".join(machine_is["version"]))
    results = load(results_path) or {"processors": {}}
    entry = results["processors"].setdefault(key_of(name), {})
    entry.update(name=name, machine=machine_is)
    peers = load(out, "training.json") or []
    for section, found in (("training", training(peers)), ("others", sessions(peers))):
        if found["rows"]:
            entry[section] = found
    if os.path.exists(os.path.join(out, "studies.json")):
        entry["studies"] = load(out, "studies.json")
    if os.path.exists(os.path.join(out, "gemm.txt")):
        entry["gemm"] = gemm(os.path.join(out, "gemm.txt"))
    if os.path.isdir(os.path.join(out, "sampling")):
        entry["sampling"] = sampling(os.path.join(out, "sampling"))
    if os.path.isdir(os.path.join(out, "profile")):
        entry["profile"] = profile(os.path.join(out, "profile"))
    if os.path.exists(os.path.join(out, "placements.json")):
        entry["placements"] = load(out, "placements.json")
    if os.path.exists(os.path.join(out, "more_cores.json")):
        entry["more_cores"] = {"rows": load(out, "more_cores.json")}
    if os.path.isdir(os.path.join(out, "scaling")):
        entry["scaling"] = scaling(os.path.join(out, "scaling"))
    text = json.dumps(rounded(results), indent=1, ensure_ascii=False) + "\n"
    with open(results_path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(results_path + ".new", results_path)
    print(f"{results_path}: {name}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("machine")
    one.add_argument("plumb")
    other = commands.add_parser("record")
    other.add_argument("out")
    other.add_argument("results")
    other.add_argument("--processor", default="")
    args = parser.parse_args()
    if args.command == "machine":
        json.dump(machine(args.plumb), sys.stdout, indent=1)
        print()
    else:
        record(args.out, args.results, args.processor)


if __name__ == "__main__":
    main()
