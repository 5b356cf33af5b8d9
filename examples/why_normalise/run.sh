#!/usr/bin/env bash
# Trains the three models of this folder on the same names with the same seeds, and prints how they
# compare. Runs that are finished are kept, others go on from their last checkpoint, so it may be
# interrupted and started again at any time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
placements=(pre post none)

usage() {
  cat << TEXT
usage: run.sh [--seeds N] [--data FILE] [--out DIR]

  --seeds N     train with the seeds 1 to N (default: 3)
  --data FILE   one name a line (default: examples/data/names.txt)
  --out DIR     where the runs go (default: build/why_normalise)
TEXT
}
fail() { printf '%s\n' "run.sh: $2" >&2; exit "$1"; }

seeds=3
data=$root/examples/data/names.txt
out=$root/build/why_normalise
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --seeds | --data | --out) [ $# -ge 2 ] || fail 2 "$1 needs a value" ;;&
    --seeds) seeds=$2 ;;
    --data) data=$(realpath -- "$2") ;;
    --out) out=$(realpath -m -- "$2") ;;
    *) usage >&2; fail 2 "unknown argument $1" ;;
  esac
  shift 2
done
[[ $seeds =~ ^[1-9][0-9]{0,3}$ ]] || fail 2 "--seeds $seeds: a number from 1 to 9999 is wanted"
[ -r "$data" ] || fail 2 "$data: no such file"

{
  "$root/tools/install_dependencies.sh"
  "$root/tools/build.sh" release plumb plugins/all
} >&2
plumb=$root/build/release/bin/plumb

# A table must not mix data or recipes: one output directory belongs to one set of inputs.
mkdir -p "$out"
inputs=$(cd "$here" && cat -- "$data" train.pbtxt "${placements[@]/%/.pbtxt}" | cksum)
if [ -e "$out/inputs" ] && [ "$(< "$out/inputs")" != "$inputs" ]; then
  fail 2 "$out holds runs of other data or other models; delete it or give another --out"
fi
printf '%s\n' "$inputs" > "$out/inputs"

max_steps=$(awk '$1 == "max_steps:" { print $2 }' "$here/train.pbtxt")

# Has the run a checkpoint of the last step?
finished() {
  [ -r "$1/latest" ] && [ "$(tr -cd '0-9' < "$1/latest" | sed 's/^0*//')" = "$max_steps" ]
}

diverged=()
for ((seed = 1; seed <= seeds; ++seed)); do
  for placement in "${placements[@]}"; do
    run=$out/$placement-$seed
    if finished "$run"; then continue; fi
    resume=()
    if [ -e "$run/latest" ]; then
      resume=(--resume)
    elif [ -e "$run/model.pbtxt" ]; then
      rm -r -- "$run"  # stopped before its first checkpoint: nothing to go on from
    fi
    status=0
    "$plumb" train "$here/$placement.pbtxt" --data "$data" --train "$here/train.pbtxt" \
      --seed "$seed" --out "$run" "${resume[@]}" >&2 || status=$?
    case $status in
      0) ;;
      4) diverged+=("$placement-$seed") ;;  # a result of the study, not a failure of it
      *) exit "$status" ;;
    esac
  done
done

# The figures of one placement over its seeds: one "name<TAB>value" a line.
figures() {
  local placement=$1 files=() seed
  for ((seed = 1; seed <= seeds; ++seed)); do
    if finished "$out/$placement-$seed"; then files+=("$out/$placement-$seed/metrics.jsonl"); fi
  done
  printf 'runs\t%s\n' ${#files[@]}
  [ ${#files[@]} -gt 0 ] || return 0
  awk -v steps="$max_steps" -v plateau="$plateau" '
    function number(name,   key) {  # of the current line
      key = "\"" name "\":"
      return substr($0, index($0, key) + length(key)) + 0
    }
    function record(figure, value) {
      ++count[figure]; sum[figure] += value; square[figure] += value * value
    }
    function summary(figure, digits,   n, mean, variance) {
      n = count[figure]; mean = sum[figure] / n
      if (n == 1) { printf "%s\t%.*f\n", figure, digits, mean; return }
      variance = (square[figure] - n * mean * mean) / (n - 1)
      printf "%s\t%.*f ± %.*f\n", figure, digits, mean, digits, sqrt(variance > 0 ? variance : 0)
    }
    FNR == 1 { first = all = last = seconds = 0; high = -1; low = 1e30 }
    {
      loss = number("loss"); seconds += number("seconds"); all += loss
      if (FNR <= 50) first += loss
      if (FNR <= 20 && loss > high) high = loss
      if (loss < low) low = loss
      if (FNR > steps - 100) last += loss
    }
    FNR == steps {
      record("first", first / 50); record("last", last / 100); record("all", all / steps)
      record("high", high); record("low", low); record("speed", steps / seconds)
      if (last / 100 > plateau - 0.1) ++stuck
    }
    END {
      summary("first", 3); summary("last", 3); summary("all", 3)
      summary("high", 2); summary("low", 2); summary("speed", 0)
      printf "stuck\t%d of %d\n", stuck, count["last"]
    }' "${files[@]}"
}

# What a model gets that knows how often each letter occurs and nothing else, in nats: the mean over
# names of the mean over a name and its end. Letters are bytes here.
plateau=$(LC_ALL=C awk '
  length($0) {
    names[++n] = $0; ++uses["end"]; total += length($0) + 1
    for (i = length($0); i > 0; --i) ++uses[substr($0, i, 1)]
  }
  END {
    for (letter in uses) cost[letter] = -log(uses[letter] / total)
    for (k = 1; k <= n; ++k) {
      one = cost["end"]
      for (i = length(names[k]); i > 0; --i) one += cost[substr(names[k], i, 1)]
      sum += one / (length(names[k]) + 1)
    }
    printf "%.3f", sum / n
  }' "$data")

declare -A figure
for placement in "${placements[@]}"; do
  while IFS=$'\t' read -r name value; do
    figure[$placement.$name]=$value
  done < <(figures "$placement")
  if [ "${figure[$placement.runs]}" -gt 0 ]; then
    figure[$placement.parameters]=$("$plumb" describe --json "$here/$placement.pbtxt" |
      awk 'match($0, /"parameters": *[0-9]+/) {
        text = substr($0, RSTART, RLENGTH); sub(/.*: */, "", text); print text; exit }')
  fi
done

# printf pads bytes, and "±" has two; so does ${#..} where the locale is not UTF-8.
cell() {
  local plain=${2//±/+}
  printf '%*s%s' $(($1 - ${#plain})) '' "$2"
}
row() {
  printf '%-30s' "$1"
  local placement
  for placement in "${placements[@]}"; do cell 18 "${figure[$placement.$2]:--}"; done
  printf '\n'
}
plural=s
[ "$seeds" != 1 ] || plural=
printf '\n%d steps of one name, %d seed%s, mean ± standard deviation over the seeds, ' \
  "$max_steps" "$seeds" "$plural"
printf 'loss in nats\n\n'
printf '%-30s' ''
for placement in "${placements[@]}"; do cell 18 "$placement"; done
printf '\n'
row 'parameters' parameters
row 'loss, first 50 steps' first
row 'loss, last 100 steps' last
row 'loss, all steps' all
row 'largest loss, first 20 steps' high
row 'smallest loss' low
row 'seeds left on the plateau' stuck
row 'steps a second' speed
printf '\nThe plateau is %s nats: letter frequencies alone. A seed is left on it when its last 100\n' \
  "$plateau"
printf 'steps are not 0.1 below.\n'
[ ${#diverged[@]} = 0 ] || printf '\nDiverged, and not in the table: %s\n' "${diverged[*]}"

printf '\nNames drawn from each model of seed 1, at temperature 0.5\n\n'
for placement in "${placements[@]}"; do
  if finished "$out/$placement-1"; then
    "$plumb" sample "$out/$placement-1" --num 5 --seed 1 --temperature 0.5 |
      awk -v placement="$placement" '{ print NR "\t" placement "\t" ($0 == "" ? "(empty)" : $0) }'
  fi
done | awk -F'\t' -v order="${placements[*]}" '
  BEGIN {
    columns = split(order, placement, " ")
    for (c = 1; c <= columns; ++c) name[0, placement[c]] = placement[c]
  }
  { name[$1, $2] = $3; if ($1 + 0 > last) last = $1 + 0 }
  END {
    for (i = 0; i <= last; ++i) {
      line = sprintf("%-3s", i > 0 ? i : "")
      for (c = 1; c <= columns; ++c) line = line sprintf("%-18s", name[i, placement[c]])
      sub(/ +$/, "", line)
      print line
    }
  }'
