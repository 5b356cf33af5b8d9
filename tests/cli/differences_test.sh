#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the differences of a study with a grid are between models in the same cell, and that
# their intervals and p-values are those that another program computes from runs.csv.
# Usage: differences_test.sh SOURCE PLUMB
set -euo pipefail
source=$1 plumb=$2
study=$(mktemp -d)
trap 'rm -rf "$study"' EXIT
"$plumb" compare "$source"/examples/why_normalise/{pre,post,no_norm}.pbtxt --data "$source/examples/data/names.txt" \
  --set train.max_steps=120 --set model.n_layer=2 --grid train.learning_rate=0.001,0.02 --grid train.batch_size=1,2 \
  --seeds 4 --samples 0 --out "$study/out" --quiet > "$study/text"
python3 "$source/tests/cli/check_differences.py" "$study/out"
python3 - "$study/out" "$study/text" << 'EOF'
import json, sys
report = json.load(open(f"{sys.argv[1]}/report.json", encoding="utf-8"))
text = open(sys.argv[2], encoding="utf-8").read()
assert len(report["cells"]) == 4, report["cells"]
judged = [entry for entry in report["paired"] if entry["metric"] == report["judged"]]
assert len(judged) == 4 * 3, "three pairs of models in each of four cells"
for entry in report["paired"]:
    cells = {report["groups"][entry[key]]["cell"] for key in ("group", "against")}
    assert cells == {entry["cell"]}, entry
best = report["best"]
assert best["chosen_with"] == 2 and len(best["paired"]) == 3, best
assert "best setting" in text and "Each model is at its best setting, chosen by the first " in text, text
EOF

# A term below rounding overflows once a stream's element is large: some seeds diverge. They count as worse than any
# loss, and the headline names them.
cat > "$study/frail.pbtxt" << 'EOF_MODEL'
n_layer: 2 n_head: 2 d_model: 16 context_length: 16
placement { name: "frail" each: "x = x + f(norm(x)) + 1e-30 * (1e-30 * exp(8 * x))" end: "x = norm(x)" }
block { placement: "frail" norm: "rms_norm" }
EOF_MODEL
"$plumb" compare "$source/examples/why_normalise/pre.pbtxt" "$study/frail.pbtxt" --data "$source/examples/data/names.txt" \
  --set model.n_layer=2 --set train.max_steps=300 --set train.learning_rate=0.01 --set train.batch_size=8 \
  --set train.data.format=DOCUMENTS --set train.data.val_fraction=0 --seeds 16 --samples 0 --out "$study/frail" --quiet > "$study/text"
python3 "$source/tests/cli/check_differences.py" "$study/frail"
python3 - "$study/frail" "$study/text" << 'EOF_DIVERGED'
import json, sys
report = json.load(open(f"{sys.argv[1]}/report.json", encoding="utf-8"))
text = open(sys.argv[2], encoding="utf-8").read()
diverged = sum(run["status"] == "diverged" for run in report["runs"])
assert 2 <= diverged < 16, f"{diverged} runs diverged"
failed = f"diverged in {diverged} of 16)"
assert failed in report["conclusion"], report["conclusion"]
assert f"frail ({failed} − pre" in text, text
assert all(entry["mean"] is None and entry["test"] == "signs" for entry in report["paired"]), report["paired"]
EOF_DIVERGED

# With --choosing-seeds, the other seeds are trained at the best setting of each model alone.
study_of() {
  "$plumb" compare "$source"/examples/why_normalise/{pre,post,no_norm}.pbtxt --data "$source/examples/data/names.txt" \
    --set train.max_steps=60 --set model.n_layer=2 --grid "train.learning_rate=0.001,0.01,0.03" --samples 0 --seeds 6 --quiet "$@"
}
study_of --out "$study/all" > /dev/null
study_of --choosing-seeds 3 --out "$study/chosen" > "$study/text"
python3 - "$study" << 'EOF_PYTHON'
import csv, json, sys
all_, chosen = (json.load(open(f"{sys.argv[1]}/{name}/report.json", encoding="utf-8")) for name in ("all", "chosen"))
rows = {name: list(csv.DictReader(open(f"{sys.argv[1]}/{name}/runs.csv", encoding="utf-8"))) for name in ("all", "chosen")}
assert len(rows["all"]) == 3 * 3 * 6 and len(rows["chosen"]) == len(chosen["runs"]) == 3 * 3 * 3 + 3 * 3, len(rows["chosen"])
assert all(row in rows["all"] for row in rows["chosen"]), "a run differs"
assert chosen["best"] == {**all_["best"], "models": chosen["best"]["models"], "judged_alone": True}, "the comparison differs"
# Groups are compared over the seeds that all of them have, which the settings of the best agree with.
results = {(group["model"], group["cell"]): group["result"] for group in chosen["groups"]}
assert {result["runs"] for result in results.values()} == {3}, results
for model, best in enumerate(chosen["best"]["models"]):
    assert best["cell"] == min(range(3), key=lambda cell: results[model, cell]["mean"]), (best, results)
for a, b in zip(all_["best"]["models"], chosen["best"]["models"]):
    assert {**a, "mean_rank": 0} == {**b, "mean_rank": 0}, (a, b)
EOF_PYTHON
[ "$(find "$study/chosen/runs" -name result.json | wc -l)" = 36 ]

# A range of rates extends for the models whose best rate is at an end, with a store and when it is resumed.
range_of() {
  "$plumb" compare "$source"/examples/why_normalise/{pre,post}.pbtxt --data "$source/examples/data/names.txt" \
    --set train.max_steps=60 --set model.n_layer=2 --samples 0 --quiet "$@"
}
range="train.learning_rate=0.001..0.002"
range_of --grid "$range" --seeds 6 --choosing-seeds 2 --store "$study/store" --out "$study/range" > "$study/text"
grep -q 'value: "0.001..0.002"' "$study/range/study.pbtxt"
cp "$study/range/runs.csv" "$study/first.csv"
range_of --grid "$range" --seeds 6 --choosing-seeds 2 --out "$study/range" > /dev/null
cmp "$study/first.csv" "$study/range/runs.csv"
range_of --grid "$range" --seeds 6 --choosing-seeds 2 --store "$study/store" --out "$study/again" > /dev/null
cmp "$study/first.csv" "$study/again/runs.csv"
python3 - "$study" << 'EOF_RANGE'
import collections, csv, json, sys
report = json.load(open(f"{sys.argv[1]}/range/report.json", encoding="utf-8"))
rates, chosen = collections.defaultdict(lambda: collections.defaultdict(list)), collections.defaultdict(set)
for run in csv.DictReader(open(f"{sys.argv[1]}/range/runs.csv", encoding="utf-8")):
    rate = float(run["train.learning_rate"])
    if int(run["seed"]) <= 2:
        rates[run["model"]][rate].append(float(run["validation"]))
    else:
        chosen[run["model"]].add(rate)
assert set(rates) == {"pre", "post"}, rates
for model, losses in rates.items():
    tried = sorted(losses)
    assert len(tried) > 2 and all(abs(b / a - 2) < 1e-3 for a, b in zip(tried, tried[1:])), tried
    best = min(tried, key=lambda rate: sum(losses[rate]))
    assert chosen[model] == {best} and tried[0] < best < tried[-1], (model, best, tried)
assert "edge" not in json.dumps(report["best"]), report["best"]
assert len(report["groups"]) <= 2 * len({rate for losses in rates.values() for rate in losses}), "untried rates are reported"
EOF_RANGE
# A report of a study concludes what the study did: the same baseline, choice and seeds.
for name in chosen range; do
  "$plumb" report "$study/$name" --out "$study/report-$name" --quiet > "$study/text"
  python3 - "$study/$name" "$study/report-$name" << 'EOF_REPORT'
import json, sys
trained, found = (json.load(open(f"{path}/report.json", encoding="utf-8")) for path in sys.argv[1:])
assert found["best"] == trained["best"], (found["best"], trained["best"])
assert found["conclusion"] == trained["conclusion"], found["conclusion"]
assert [model["name"] for model in found["models"]] == [model["name"] for model in trained["models"]], found["models"]
EOF_REPORT
done

# A copy of a model is a model of its own, with the name of its file; its differences are 0.
cp "$source/examples/why_normalise/pre.pbtxt" "$study/copy.pbtxt"
"$plumb" compare "$source/examples/why_normalise/pre.pbtxt" "$study/copy.pbtxt" --data "$source/examples/data/names.txt" \
  --set train.max_steps=5 --set model.n_layer=2 --samples 0 --quiet --out "$study/same" > "$study/text"
grep -q '^copy .*− pre .* +0.000 ' "$study/text"

# A dry run counts the rates of the range, and times models that diverge.
range_of --grid train.learning_rate=1..2 --seeds 6 --choosing-seeds 2 --set train.max_steps=9 --dry-run --json --out "$study/none" \
  > "$study/dry"
python3 -c "import json, sys; assert json.load(sys.stdin)['runs'] == 2 * (2 * 2 + 4)" < "$study/dry"
refused() {
  local words=$1
  shift
  if range_of --out "$study/none" "$@" 2> "$study/error"; then exit 1; fi
  grep -q -- "$words" "$study/error" || { cat "$study/error" >&2; exit 1; }
}
refused "only learning rates have" --grid train.max_steps=10..20
refused "two rates above 0, the lower one first" --grid train.learning_rate=0.02..0.01
refused "the only value of its field" --grid train.learning_rate=0.01..0.02,0.5
refused "has no other setting" --grid "$range" --grid model.n_layer=2,4
refused "needs two seeds" --grid "$range" --seeds 1

if study_of --choosing-seeds 6 --out "$study/none" 2> "$study/error"; then exit 1; fi
grep -q "no seed is left to compare" "$study/error"
