#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that plumb report finds the models, settings and seeds of runs again: a report of a study's directory has the
# numbers of the study, and runs of plumb train join them. Checks its errors.
# Usage: report_test.sh SOURCE PLUMB
set -euo pipefail
source=$1 plumb=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
examples=$source/examples/why_normalise
shared=(--data "$source/examples/data/names.txt" --train "$examples/train.pbtxt" --set train.max_steps=60)
"$plumb" compare "$examples"/{pre,post}.pbtxt "${shared[@]}" --grid train.learning_rate=0.001,0.01 \
  --grid model.n_layer=1,2 --seeds 4 --samples 1 --out study --quiet > study.txt
"$plumb" report study --out again > again.txt 2> warnings
[ ! -s warnings ]
python3 - << 'EOP'
import csv, json
def rows(path):
    hashes = ("model_hash", "recipe_hash", "run_hash")
    table = [{k: v for k, v in row.items() if k not in hashes} for row in csv.DictReader(open(path, encoding="utf-8"))]
    # The order of the grid's fields may differ.
    key = lambda row: (row["model"], row["train.learning_rate"], row["model.n_layer"], int(row["seed"]))
    return {key(row): {k: v for k, v in row.items() if k != "group"} for row in table}
study, again = rows("study/runs.csv"), rows("again/runs.csv")
assert len(study) == 2 * 4 * 4 and study == again, "runs.csv differs"
def memory(path):
    groups = csv.DictReader(open(path, encoding="utf-8"))
    return {(g["model"], g["train.learning_rate"], g["model.n_layer"]): int(g["memory"]) for g in groups}
assert memory("study/table.csv") == memory("again/table.csv"), "memory differs"
best = [json.load(open(f"{out}/report.json", encoding="utf-8"))["best"] for out in ("study", "again")]
means = [sorted(model["mean"] for model in one["models"]) for one in best]
assert means[0] == means[1], means
EOP

[ "$(head -n 1 study/best.tex)" = "$(head -n 1 again/best.tex)" ]
for model in pre post; do grep -q "^$model.* & .*learning" again/best.tex; done

# Models that a grid made keep their names; the study's model has another.
"$plumb" compare "$examples/pre.pbtxt" "${shared[@]}" --grid model.block.placement=pre,post --seeds 2 --samples 0 \
  --title "Norms & <b>" --out grid --quiet > grid.txt
"$plumb" report grid --title "Two placements" --out names > names.txt
for file in grid.txt names.txt; do
  for model in pre post; do grep -q "^$model  " "$file" || { cat "$file"; exit 1; }; done
done
for model in pre post; do grep -q "^$model & " names/table.tex; done
grep -q '^model & parameters & runs & last 100 ' names/table.tex  # the columns that fit a page
sed 's/model: ".*"/&\n&/' grid/study.pbtxt > two.pbtxt && mv two.pbtxt grid/study.pbtxt
"$plumb" report grid --title "Two placements" --out names > names.txt  # as if the study had two files
grep -q '^pre, block.placement=post  ' names.txt || { cat names.txt; exit 1; }
[ ! -e names/best.tex ]
[ "$(head -n 1 grid/table.md)" = '# Norms \& \<b>' ] && [ "$(head -n 1 names/table.md)" = '# Two placements' ]
grep -q '"title":"Norms & <b>"' grid/report.json

# Two runs with the same seed, and a seed that only one model has.
for run in "pre 7" "post 7" "pre 8"; do
  read -r model seed <<< "$run"
  "$plumb" train "$examples/$model.pbtxt" "${shared[@]}" --seed "$seed" --out "runs/$model-$seed" --quiet > /dev/null
done
"$plumb" report runs/pre-7 runs/post-7 runs/pre-8 --out three > three.txt
grep -q '^pre  .* 2  ' three.txt && grep -q '^post  .* 1  ' three.txt && grep -q '^post.* − pre.* 1  ' three.txt
"$plumb" report runs/pre-7 --out one > /dev/null
for file in report.html table.md table.tex runs.csv; do [ -s "one/$file" ]; done

head -n 21 runs/post-7/metrics.csv > short && mv short runs/post-7/metrics.csv
"$plumb" report runs/pre-7 runs/post-7 --out half 2>&1 > /dev/null | grep -q "runs/post-7: interrupted after 20 of 60 steps"
"$plumb" report runs/post-7 --out alone 2> /dev/null | grep -q '^No run has finished: 1 run has not reached the last step\.$'

# A model without a run in the first setting has its name there, too.
for model in pre post; do
  "$plumb" train "$examples/$model.pbtxt" "${shared[@]}" --seed 7 --set train.learning_rate=0.02 --out "faster/$model" --quiet > /dev/null
done
"$plumb" report runs/pre-7 faster/* --out settings > /dev/null
python3 - << 'EOP'
import json
names = [group["name"] for group in json.load(open("settings/report.json", encoding="utf-8"))["groups"]]
assert names == [f"{model}, learning_rate={rate}" for model in ("pre", "post") for rate in ("0.01", "0.02")], names
EOP

# Expects an error with a text, and no output directory.
refused() {
  local text=$1; shift
  if "$plumb" report "$@" > out 2>&1; then echo "report $* was not refused"; exit 1; fi
  grep -q -- "$text" out || { cat out; exit 1; }
}
# A run that was trained on has its new end, and not the result that the study had recorded.
"$plumb" compare "$examples/pre.pbtxt" "${shared[@]}" --seeds 1 --samples 0 --keep-checkpoints --out longer --quiet > /dev/null
"$plumb" train --resume --out longer/runs/pre-seed1 --data "$source/examples/data/names.txt" --set train.max_steps=90 --quiet > /dev/null
"$plumb" report longer --out extended > /dev/null
grep -q ',1,finished,90,' extended/runs.csv

# The baseline is the study's first model, whatever the names of models and files are.
{ echo 'name: "zz"'; cat "$examples/pre.pbtxt"; } > one.pbtxt
{ echo 'name: "aa"'; cat "$examples/post.pbtxt"; } > another.pbtxt
"$plumb" compare one.pbtxt another.pbtxt --set model.n_layer=1 "${shared[@]}" --seeds 3 --samples 0 --out order --quiet > order.txt
"$plumb" report order --out order2 > order2.txt
grep -q '^aa.* − zz' order.txt
cmp <(grep ' − ' order.txt) <(grep ' − ' order2.txt)

# Steps that follow from the models are no setting.
sed 's/gated: .*//; s/mlp {/mlp { gated: true/' "$examples/pre.pbtxt" > gated.pbtxt
"$plumb" compare "$examples/pre.pbtxt" gated.pbtxt "${shared[@]}" --match flops --grid model.n_layer=1,2 --seeds 2 --samples 0 --out match --quiet > /dev/null
"$plumb" report match --out match2 > /dev/null
paired() { python3 -c 'import json, sys; print([pair["mean"] for pair in json.load(open(sys.argv[1]))["paired"]])' "$1/report.json"; }
paired match | grep -q ','
[ "$(paired match)" = "$(paired match2)" ]

# Data that changed under its path is not the same data.
for order in cat tac; do
  "$order" "$source/examples/data/names.txt" > names.txt
  "$plumb" train "$examples/pre.pbtxt" --data names.txt "${shared[@]:2}" --out "runs/$order" --quiet > /dev/null
done
"$plumb" report runs/cat runs/tac --out changed > changed.txt 2> /dev/null
[ "$(grep -c '^pre, data=names.txt [0-9a-f]* .* 1  ' changed.txt)" = 2 ]

# A loss that is not finite after the last step is a divergence.
hot=(--data "$source/examples/data/names.txt" --set train.max_steps=1 --set train.learning_rate=1e9 --set train.data.format=DOCUMENTS
  --set train.data.val_fraction=0.01 --set train.schedule=CONSTANT --set train.warmup_steps=0 --set train.grad_clip=0)
"$plumb" compare "$examples/no_norm.pbtxt" "${hot[@]}" --seeds 1 --samples 0 --out hot --quiet > /dev/null
grep -q 'the validation loss is -\?nan after step 1' hot/runs/no_norm-seed1/result.json
code=0
"$plumb" train "$examples/no_norm.pbtxt" "${hot[@]}" --set train.eval_interval=1 --out runs/hot --quiet > /dev/null 2>&1 || code=$?
[ "$code" = 4 ]
"$plumb" report runs/hot --out hot2 | grep -q '1 of 1 (seed 1 at step 1)'

# A checkpoint is not that of a model that was edited since.
cp -r runs/cat runs/edited && sed -i 's/x + f(norm(x))/x + 2 * f(norm(x))/' runs/edited/model.pbtxt
"$plumb" eval runs/cat --data names.txt 2>&1 | (! grep "another model")
"$plumb" eval runs/edited --data names.txt 2>&1 | grep -A 9 "was trained as another model" | grep -q '+ .*2 \* f(norm(x))'

refused "is neither a run nor a study" "$examples" --out no
for option in "--x tokens" "--label pre=Pre-LN" "--width 300"; do
  # shellcheck disable=SC2086
  refused "was removed; plumb.figures in Python draws" study $option --out no
done
refused "is a run or a study" runs/pre-7 --out runs/pre-7
cp -r runs/pre-7 runs/other && sed -i 's/^\([0-9]*\),3/\1,2/' runs/other/metrics.csv
refused "is another run of the same model, recipe and seed" runs/pre-7 runs/other --out no
"$plumb" compare "$examples/no_norm.pbtxt" "${shared[@]}" --set model.n_layer=1 --grid train.learning_rate=0.001,0.01 --seed 5 --seed 6 \
  --samples 0 --out later --quiet > /dev/null
refused "no_norm: has no run with seed 1 or 2 or 3, and these choose the setting" study later --out no
[ ! -e no ]
echo "a report of a study has its numbers; runs of plumb train join"
