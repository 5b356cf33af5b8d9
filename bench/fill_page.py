#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the tables of pages with measured results: the text between "<!-- NAME -->" and "<!-- end -->" is
replaced by a table made from RESULTS.json, if NAME is one of TABLES.

    fill_page.py RESULTS.json PAGE.md..            docs/performance/results.json; writes the pages
    fill_page.py --check RESULTS.json PAGE.md..    fails if a page differs from the results
"""
import json
import re
import sys

import workers

TYPES = ["f32", "bf16", "int8"]


def table(head, rows):
    return workers.table(head, rows, markdown=True)


def percent(share):
    return "–" if share is None else f"{100 * share:.0f} %"


def times(ratio):
    """Returns a factor with two decimals, or none from 10 on."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def time_text(seconds):
    return workers.time_text(seconds).replace("us", "µs")


def memory_text(count):
    return "–" if not count else workers.bytes_text(count)


def system_of(entry):
    """Returns one sentence about the system of the measurement."""
    machine = entry["machine"]
    if "text" in machine:
        return machine["text"]
    version = " ".join(machine["version"])
    processor = re.search(r"(\w+) family \d+ model \d+", version)
    parts = [processor[0] if processor else "", f"{machine['processors']} processors",
             f"{machine['memory_bytes'] / 2**30:.0f} GiB", machine["system"],
             (re.search(r"oneDNN [\d.]+", version) or [""])[0]]
    return ", ".join(part for part in parts if part) + "."


def remark(section):
    return f"\n\n{section['remark']}" if section.get("remark") else ""


def training_table(section):
    has_memory = any(row.get("memory") for row in section["rows"])
    head = ["model", "type", "peer", "plumb", "peer's", "ratio", "p10 .. p90", "of peak", "peer's of peak"]
    rows = []
    for r in section["rows"]:
        rows.append([r["title"], r["dtype"], r["peer"], time_text(r["plumb"]), time_text(r["theirs"]),
                     times(r["ratio"][0]), f"{times(r['ratio'][1])} .. {times(r['ratio'][2])}",
                     percent(r["share"]), percent(r["their_share"])])
        if has_memory:
            rows[-1] += [memory_text(r.get("memory")), memory_text(r.get("their_memory"))]
    return table(head + (["memory", "peer's memory"] if has_memory else []), rows) + remark(section)


def studies_table(section):
    rows = []
    for r in section["rows"]:
        for what, wall, cpu in ((f"{r['peer']}, training alone", "training_wall", "training_cpu"),
                                (f"{r['peer']}, the whole process", "wall", "cpu")):
            rows.append([f"{r['seeds']} seeds", what, f"{r['plumb_wall']:.2f} s", f"{r[wall]:.2f} s",
                         f"{r['plumb_cpu']:.2f} s", f"{r[cpu]:.2f} s", times(r[cpu] / r["plumb_cpu"])])
    text = table(["1,000 steps each", "peer", "plumb", "peer's", "plumb, CPU", "peer's, CPU", "ratio of CPU"], rows)
    if "step" in section:
        step = section["step"]
        text += (f"\n\nA step on one thread takes {time_text(step['plumb'])}, and {time_text(step['loop'])} in the loop "
                 f"that is written by hand: {times(step['plumb'] / step['loop'])} times as long.")
    return text + remark(section)


def sampling_table(section):
    rows = []
    for r in section["rows"]:
        of = f" of {r['machine'] / 1e9:.0f}" if r.get("machine") else ""
        rows.append([r["pass"], r["dtype"], time_text(r["seconds"][0]),
                     f"{time_text(r['seconds'][1])} .. {time_text(r['seconds'][2])}",
                     f"{r['tokens']:,.0f}", f"{r['rate'] / 1e9:.1f} {r['unit']}",
                     percent(r["share"]) + of, memory_text(r.get("memory"))])
    return table(["pass", "weights", "median", "p10 .. p90", "tokens/s", "rate", "of the machine's",
                  "memory"], rows) + remark(section)


def profile_table(section):
    columns = section["columns"]
    names = []
    for column in columns:
        names += [name for name in column["ms"] if name not in names]
    sums = [sum(column["ms"].values()) for column in columns]
    # Ops that take less than one percent everywhere share one row.
    large = [name for name in names
             if any(c["ms"].get(name, 0) >= 0.01 * s for c, s in zip(columns, sums))]
    large.sort(key=lambda name: -columns[0]["ms"].get(name, 0))
    cell = lambda value, total: f"{value:,.1f} ms, {percent(value / total)}"
    rows = [[name] + [cell(c["ms"].get(name, 0), s) for c, s in zip(columns, sums)] for name in large]
    rest = [s - sum(c["ms"].get(name, 0) for name in large) for c, s in zip(columns, sums)]
    rows.append(["all others"] + [cell(value, s) for value, s in zip(rest, sums)])
    rows.append(["a step"] + [f"{s:,.1f} ms" for s in sums])
    return table(["op"] + [column["title"] for column in columns], rows) + remark(section)


def placements_table(section):
    text = table(["placement", "step", "its norms", "rest over none", "p10 .. p90"], [
        [r["placement"], time_text(r["step"][0]), time_text(r["norms"]),
         f"{r['rest_over_none'][0]:.3f}", f"{r['rest_over_none'][1]:.3f} .. {r['rest_over_none'][2]:.3f}"]
        for r in section["placements"]])
    if "plugin" in section:
        low = section["plugin"]["ratio"]
        text += ("\n\n`rms_norm` compiled outside of the tree and loaded with `--plugin`: the step takes "
                 f"{low[0]:.3f} ({low[1]:.3f} .. {low[2]:.3f}) of the time with the shipped one.")
    return text + remark(section)


SCALING = {"depth": "layers", "width": "d_model", "context": "tokens of context",
           "batch": "sequences of a batch"}


def scaling_table(section):
    texts = []
    for name, title in SCALING.items():
        points = section["tables"].get(name)
        if not points:
            continue
        types = [t for t in TYPES if any(p["dtype"] == t for p in points)]
        at = lambda x, t: next((p for p in points if p["at"] == x and p["dtype"] == t), None)
        rows = []
        for x in sorted({p["at"] for p in points}):
            row = [str(x)]
            for t in types:
                point = at(x, t)
                row += [f"{point['microseconds']:.1f}" if point else "–",
                        f"{point['floor']:.1f}" if point and point["floor"] else "–"]
            rows.append(row)
        head = [title] + [column for t in types for column in (f"{t}, µs a token", "floor")]
        texts.append(table(head, rows))
    return "\n\n".join(texts) + remark(section)


def gemm_table(section):
    """Returns a row for each layer and type: GFLOP/s of the planned engine, and products with a faster engine."""
    layers = {}
    for r in section["rows"]:
        layers.setdefault((r["layer"], r["dtype"]), []).append(r)
    rows = []
    for (layer, dtype), found in layers.items():
        faster = [f"{r['product']}: {max(r['engines'], key=r['engines'].get)}, {r['over_best']:.2f}"
                  for r in found if r["over_best"] > 1.05]
        rows.append([layer, dtype, *(f"{r['engines']['auto']:.0f}" for r in found), "; ".join(faster) or "–"])
    return table(["layer and tokens", "type", "forward", "gradient of the input", "of the weight",
                  "a faster engine, and by what factor"], rows) + f"\n\nEngines: {section['engines']}." + remark(section)


def more_cores_table(section):
    rows = []
    for r in section["rows"]:
        cells = [f"{time_text(p['seconds'])}, {r['measured'][0] / p['seconds']:.1f} x" for p in r["predicted"].values()]
        last = list(r["predicted"].values())[-1]
        rows.append([r["title"], r["dtype"], f"{r['tasks']:.0f}", *map(time_text, r["measured"]), *cells,
                     percent(last["matmul"] / last["seconds"])])
    return table(["model", "type", "tasks of a product", "1 thread", "2 threads", "2 predicted", "8 cores", "64 cores",
                  "products at 64"], rows) + remark(section)


SECTIONS = [
    ("training", "training steps", training_table),
    ("studies", "a study of one model, everything included", studies_table),
    ("sampling", "prompts and decoding, GPT-2 124M", sampling_table),
    ("profile", "time of a training step by op, GPT-2 124M", profile_table),
    ("placements", "what a placement costs, GPT-2 124M 4 x 64 f32", placements_table),
    ("scaling", "time of a training step against its sizes", scaling_table),
    ("more_cores", "training steps on more cores, predicted", more_cores_table),
    ("gemm", "matrix products, GFLOP/s", gemm_table),
]


def all_results(results):
    """Returns docs/performance/results.md: every table of every processor."""
    parts = []
    for entry in results["processors"].values():
        if not any(name in entry for name, _, _ in SECTIONS):
            continue
        parts.append(f"## {entry['name']}\n\n{system_of(entry)}")
        for name, title, draw in SECTIONS:
            if name in entry:
                parts.append(f"### {entry['name']}: {title}\n\n{draw(entry[name])}")
    return "\n\n".join(parts)


def current(results, section):
    """Returns the entries that have a section measured with this version."""
    return [e for e in results["processors"].values() if section in e and not e[section].get("remark")]


def summary(results):
    """Returns the table of README.md: a row per model, a column per processor; ratios to the fastest peer, except PyTorch
    1.13, which is of 2022. The study's model is in a table of its own, since one step at a time is no way to train it."""
    entries = []
    for e in current(results, "training"):
        rows = [r for r in e["training"]["rows"] if r["model"] != "study" and r["peer"] != "PyTorch 1.13"]
        if rows:
            entries.append({**e, "training": {"rows": rows}})
    titles = list(dict.fromkeys(row["title"] for entry in entries for row in entry["training"]["rows"]))

    def cell(entry, title):
        found = {}
        for r in entry["training"]["rows"]:
            if r["title"] == title and (r["dtype"] not in found or r["ratio"][0] < found[r["dtype"]]["ratio"][0]):
                found[r["dtype"]] = r
        return "; ".join(
            ("" if t == "f32" else f"{t} ") + f"{time_text(found[t]['plumb'])}, {times(found[t]['ratio'][0])} x"
            for t in TYPES if t in found) or "–"

    def peers(entry):
        names = list(dict.fromkeys(r["peer"] for r in entry["training"]["rows"]))
        compiled = [name for name in names if name.endswith(", compiled")]
        return ", ".join(name + " eager and compiled" * (f"{name}, compiled" in compiled)
                         for name in names if name not in compiled)

    rows = [[title] + [cell(entry, title) for entry in entries] for title in titles]
    return table(["a training step, and its speed over the fastest peer's"] +
                 [f"{entry['name']} ({peers(entry)})" for entry in entries], rows)


def studies(results):
    """Returns the table of README.md with the CPU seconds of a study next to JAX, and a step next to the loop."""
    rows = []
    for entry in current(results, "studies"):
        section = entry["studies"]
        rows += [[entry["name"], f"{r['seeds']} seeds, 1,000 steps each", f"{r['plumb_cpu']:.1f} s", r["peer"],
                  f"{r['training_cpu']:.1f} s", times(r["training_cpu"] / r["plumb_cpu"])] for r in section["rows"]]
        if "step" in section:
            step = section["step"]
            rows.append([entry["name"], "a step, 1 thread", time_text(step["plumb"]), "C++ loop",
                         time_text(step["loop"]), times(step["loop"] / step["plumb"])])
    return table(["processor", "study of 26 thousand parameters", "plumb", "peer", "peer's", "ratio"], rows)


def decoding(results):
    """Returns the table of README.md with tokens per second of GPT-2 124M."""
    rows = []
    for entry in current(results, "sampling"):
        found = {r["dtype"]: r for r in entry["sampling"]["rows"] if r["pass"].startswith("decode 1 x")}
        if found:
            rows.append([entry["name"]] + [
                f"{found[t]['tokens']:.0f} ({percent(found[t]['share'])})" if t in found else "–" for t in TYPES])
    return table(["decoding GPT-2 124M, tokens/s (share of the memory's bandwidth)"] + TYPES, rows)


def others(results):
    """Returns the table of docs/performance/results.md with programs other than PyTorch."""
    rows = []
    for entry in results["processors"].values():
        for r in entry.get("others", {}).get("rows", []):
            rows.append([entry["name"], r["peer"], r["what"], r["plumb"], r["theirs"], r["ratio"], r["how"]])
    return table(["processor", "program", "pass", "plumb", "theirs", "ratio (range)", "measured"], rows)


TABLES = {"results": all_results, "summary": summary, "studies": studies, "decoding": decoding, "others": others}


def filled(text, results):
    def fill(match):
        if match[1] not in TABLES:
            return match[0]
        return f"<!-- {match[1]} -->\n\n{TABLES[match[1]](results)}\n\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main():
    arguments = sys.argv[1:]
    check = arguments[:1] == ["--check"]
    arguments = arguments[check:]
    if len(arguments) < 2:
        sys.exit(__doc__)
    with open(arguments[0], encoding="utf-8") as file:
        results = json.load(file)
    wrong, pages = [], {}
    for page in arguments[1:]:
        with open(page, encoding="utf-8") as file:
            text = file.read()
        pages[page] = filled(text, results)
        if filled(pages[page], results) != pages[page]:
            wrong.append(f"{page}: filling it twice changes it")
        if check and pages[page] != text:
            wrong.append(f"{page} differs from {arguments[0]}: bench/fill_page.py writes it")
    if not check and not wrong:
        for page, text in pages.items():
            with open(page, "w", encoding="utf-8") as file:
                file.write(text)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
