#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmark with three placements and a few steps, and checks the page: its ranks and differences are those
# of the studies.
# Usage: benchmark_test.sh SOURCE PLUMB
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Any names and any text will do; the losses mean nothing after five steps.
PLUMB=$2 "$source/examples/benchmark/run.sh" --quick --out "$work/out" --store "$work/store" \
  --names "$source/examples/data/names.txt" --text "$source/docs/placements.md" 2> /dev/null
# At 4 layers swin_v2 has no norm of its own; ds_init and post differ in initial weights alone.
different=$(python3 "$source/examples/benchmark/twins.py" "$2" "$work/twins.json" olmo2,swin_v2,post,ds_init \
  "$source/examples/benchmark/model.pbtxt")
if [ "$different" != olmo2,post,ds_init ] || ! grep -q '"swin_v2": "olmo2"' "$work/twins.json"; then
  echo "wrong twins: $different" >&2
  exit 1
fi
python3 - "$work/out" << 'EOP'
import csv, json, math, re, sys
page = open(f"{sys.argv[1]}/README.md", encoding="utf-8").read()
titles = {"names_4": "Names, 4 layers", "names_16": "Names, 16 layers", "text": "Shakespeare's characters"}
for study, title in titles.items():
    report = json.load(open(f"{sys.argv[1]}/{study}/report.json", encoding="utf-8"))
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"\| (\d–\d|–) \| `(\w+)` \| ([\d.]+)\*? \| ([\d.]+) ±", section)
    names = [model["name"] for model in report["models"]]
    assert sorted(row[1] for row in rows) == sorted(names) and names[0] == "pre", rows
    assert [row[3] for row in rows] == sorted(row[3] for row in rows), "is not sorted"  # no run diverges
    for place, name, rate, mean in rows:
        best = report["best"]["models"][names.index(name)]
        assert f"{best['mean']:.3f}" == mean and report["cells"][best["cell"]] == f"learning_rate={rate}", name
        assert place == "–".join(map(str, best["place"] or ["", ""])), (name, place)

def losses(study, **columns):
    with open(f"{sys.argv[1]}/{study}/runs.csv", encoding="utf-8") as file:
        return [float(run["validation"]) for run in csv.DictReader(file)
                if all(run[column] == value for column, value in columns.items())]
def published(what):
    line = next(line for line in page.splitlines() if f"| {what} |" in line)
    return [float(number) for number in re.findall(r"[+−]?\d+\.\d+", line.replace(what, "").replace("−", "-"))]
T2 = 4.302653  # 97.5 % quantile of Student's distribution with two degrees of freedom
def paired(a, b, scale=1):
    d = [scale * (x - y) for x, y in zip(a, b)]
    mean = sum(d) / len(d)
    half = T2 * math.sqrt(sum((x - mean) ** 2 for x in d) / (len(d) - 1) / len(d))
    return [mean, mean - half, mean + half]
def agree(what, found, expected):
    assert len(found) == 3 and all(abs(x - y) <= 6e-4 for x, y in zip(map(abs, found), map(abs, expected))), (what, found, expected)
what = "`layer_norm` − `mlp`"
agree(what, published(what)[-3:], paired(losses("learn_llm", model="layer_norm"), losses("learn_llm", model="mlp"), 7.122 / 6.122))
what = "`post`, Shakespeare: without − with warm-up"
agree(what, published(what)[-3:], paired(losses("warm_up_text", model="post", **{"train.warmup_steps": "0"}),
                                         losses("warm_up_text", model="post", **{"train.warmup_steps": "100"})))
print("three rankings and two published rows agree with their studies")
EOP
