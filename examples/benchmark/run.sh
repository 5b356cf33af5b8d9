#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains every placement that ships on names, at two depths and five learning rates, and writes a page that ranks
# them: OUT/README.md. Placements that are the same model in a task are trained once. Resumes where it was interrupted.
#
#   examples/benchmark/run.sh [--quick] [--text FILE] [--names FILE] [--out DIR] [--store DIR]
#
# --text   input.txt of github.com/karpathy/char-rnn, data/tinyshakespeare: also trains the placements of text.txt
#          on its characters (about three hours on two cores), and repeats MiniGPT's run and the claim about warm-up
# --names  names.txt of github.com/karpathy/makemore: also repeats learn-llm's table
# --quick  three placements for a few steps, to see the page without results
# --out    directory of the studies and the page; default build/studies/benchmark
# --store  directory of runs that studies share; with it, a new placement trains its own runs alone
#
# PLUMB is the plumb program to use; without it, one is built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
placements=$(cd "$root/plugins/placements" && printf '%s\n' *.pbtxt | sed 's/\.pbtxt$//' | paste -sd,)
finalists=$(paste -sd, "$here/text.txt")
out=$root/build/studies/benchmark
text='' names='' quick=''
more=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 placements=pre,post,none finalists=pre,post,none ;;
    --text) text=$2; shift ;;
    --names) names=$2; shift ;;
    --out) out=$2; shift ;;
    --store) more+=(--store "$2"); shift ;;
    *) echo "usage: run.sh [--quick] [--text FILE] [--names FILE] [--out DIR] [--store DIR]" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "${PLUMB:-}" ]; then
  {
    "$root/tools/install_dependencies.sh" run
    "$root/tools/build.sh" run
  } >&2
  PLUMB=$root/build/quick/bin/plumb
fi

# study NAME CHOOSING REPORTED ARGUMENT.. runs one study, with seeds that choose (0: none) and that are reported.
study() {
  local name=$1 choosing=$2 seeds=$(($2 + $3))
  shift 3
  [ -z "$quick" ] || { choosing=$((choosing > 0 ? 2 : 0)) seeds=$((choosing + 3)); set -- "$@" --set train.max_steps=5; }
  [ "$choosing" = 0 ] || set -- "$@" --choosing-seeds "$choosing"
  "$PLUMB" compare "$@" --seeds "$seeds" --samples 0 "${more[@]}" --out "$out/$name" > /dev/null
}

# models NAME PLACEMENTS MODEL.. prints the placements that are different models, and writes OUT/NAME.twins.json.
models() { python3 "$here/twins.py" "$PLUMB" "$out/$1.twins.json" "${@:2}"; }

mkdir -p "$out"
for depth in 4 16; do
  different=$(models names_$depth "$placements" "$here/model.pbtxt" --set model.n_layer=$depth)
  study names_$depth 4 10 "$here/model.pbtxt" --data "$root/examples/data/names.txt" --train "$here/train.pbtxt" \
    --set model.n_layer=$depth --grid "model.block.placement=$different" --baseline pre \
    --grid 'train.learning_rate=0.001,0.003,0.01,0.03,0.1'
done
study warm_up 0 40 "$root/examples/warm_up/study.pbtxt" --set train.data.val_fraction=0.1
if [ -n "$names" ]; then
  study learn_llm 0 10 "$here/learn_llm/study.pbtxt" --data "$names"
fi
if [ -n "$text" ]; then
  shakespeare=("$root/examples/shakespeare/model.pbtxt" --data "$text"
    --train "$root/examples/shakespeare/train.pbtxt" --set train.eval_interval=0)
  # One seed chooses the rates, because a run takes 40 seconds of a processor.
  different=$(models text "$finalists" "$root/examples/shakespeare/model.pbtxt" --set model.vocab_size=65)
  study text 1 5 "${shakespeare[@]}" --grid "model.block.placement=$different" --baseline pre \
    --grid 'train.learning_rate=0.001,0.003,0.01'
  study warm_up_text 0 5 "${shakespeare[@]}" --grid 'model.block.placement=pre,post' --grid 'train.warmup_steps=0,100'
  study minigpt 0 2 "$here/minigpt/study.pbtxt" --data "$text"
fi
python3 "$here/make_page.py" "$out" > "$out/README.md.part"
mv "$out/README.md.part" "$out/README.md"
echo "page  $out/README.md"
