#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a step of each model of the studies of published tables, and compares such runs by paired.py.
# Usage: published_tables_test.sh SOURCE PLUMB
set -euo pipefail
source=$1 plumb=$2
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compare() { # STUDY OUT [OPTION ..]: a step with the seeds 1 to 3.
  "$plumb" compare "$source/examples/benchmark/$1/study.pbtxt" --data "$source/examples/data/names.txt" --out "$work/$2" --quiet \
    --seeds 3 --set train.max_steps=1 --set train.warmup_steps=0 --set train.eval_batches=1 "${@:3}" > "$work/log"
}
check_rows() { # PATTERN RUNS ..: three rows of paired.py match.
  "$source/examples/benchmark/paired.py" "${@:2}" > "$work/rows"
  [ "$(grep -cE "$1" "$work/rows")" = 3 ] || { cat "$work/rows" >&2; exit 1; }
}

for study in learn_llm minigpt circulant_hc; do compare $study $study; done
compare norms_by_optimizers adamw --choosing-seeds 1
compare norms_by_optimizers muon --choosing-seeds 1 --set train.optimizer=MUON --set train.muon.scale=MATCH_ADAMW

interval='[-+][0-9.]+ \([-+][0-9.]+ to [-+][0-9.]+\)'
check_rows "^(hc|mhc|cmhc) +3 seeds  [0-9.]+  $interval\$" "$work/circulant_hc/runs.csv"
# Only the seeds 2 and 3 count.
check_rows "^d[a-z0-9_.]+ +2 seeds  [0-9.]+  [0-9.]+  $interval  $interval  $interval\$" "$work/adamw/runs.csv" "$work/muon/runs.csv"
echo "the models of published tables train, and paired.py compares them"
