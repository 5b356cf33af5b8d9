#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the completions of the installed shells among bash, zsh and fish.
#   completion_test.sh PLUMB SCRIPTS
set -euo pipefail
plumb=$(realpath "$1") scripts=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
ln -s "$plumb" "$work/plumb"
export PATH="$work:$PATH" HOME="$work" XDG_CONFIG_HOME="$work" XDG_DATA_HOME="$work"
mkdir -p "$work/here/models dir" && cd "$work/here"
touch pre.pbtxt notes.txt

# Each case is a line up to the cursor, "|", and the complete answer in order.
cases='plumb tra|train
plumb |help docs demo train compare report sample eval describe doctor explain theory import export zoo tokenize bench plugin completion
plumb --plug|--plugin
plumb train --dt|--dtype
plumb train --dtype b|bf16
plumb train --dtype=b|bf16
plumb --threads 2 train --recompute |none block
plumb bench x --only |train prompt decode
plumb sample --weights i|int8
plumb explain --stage g|graph grad
plumb plugin |list describe check bench new note
plumb zoo |list keys show
plumb help plugin d|describe
plumb docs tok|tokenizers
plumb help re|report recipe
plumb help s|sample study
plumb completion z|zsh
plumb train --data no|notes.txt
plumb train pr|pre.pbtxt
plumb plugin check pr|pre.pbtxt
plumb compare pre.pbtxt pr|pre.pbtxt
plumb train --resume --resu|
plumb train --set train.max|train.max_steps= train.max_divergences=
plumb train --set model.attention.b|model.attention.bias=
plumb train --set train.schedule=CO|CONSTANT COSINE
plumb train --set model.tie_embeddings=|false true
plumb compare --grid model.n_l|model.n_layer=
plumb describe pre.pbtxt --set model.block.placement=deepn|deepnorm
plumb describe pre.pbtxt --set model.norm[0].plugin=layer|layer_norm
plumb train --set train.max_steps=3 --dt|--dtype
plumb plugin describe rms|rms_norm
plumb help p|placements plugin
plumb help placements resi|resi_dual
plumb help norms rms|rms_norm
plumb export run --family gptj|gptj'

tried=0
# try SHELL compares the sorted answers of ask_SHELL with the cases.
try() {
  local shell=$1 line wanted got
  tried=$((tried + 1))
  while IFS='|' read -r line wanted; do
    got=$("ask_$shell" "$line" | sort | xargs)
    # shellcheck disable=SC2086  # the value is split into words
    wanted=$(printf '%s\n' $wanted | sort | xargs)
    [ "$got" = "$wanted" ] || fail "$shell: \"$line\": \"$got\" and not \"$wanted\""
  done <<< "$cases"
}

# Calls the function as readline does, with words that are split at COMP_WORDBREAKS.
ask_bash() {
  # shellcheck disable=SC2016  # bash expands it
  bash --norc -c '
    . <(plumb completion bash)
    COMP_LINE=$1
    read -ra COMP_WORDS <<< "${COMP_LINE//=/ = }"
    [[ $COMP_LINE != *" " ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    complete -p plumb | grep -q -- "-F _plumb" || exit 1
    _plumb plumb "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf "%s\n" "${COMPREPLY[@]}"' _ "$1"
}
try bash
# The directory contains models, and its name has a space.
[ "$(ask_bash 'plumb sample mo')" = "models dir" ] || fail "bash: directories"

if command -v fish > /dev/null; then
  # Prints the words that fish would insert, without the "--dtype=" or "train.dtype=" that it repeats.
  ask_fish() {
    # shellcheck disable=SC2016  # fish expands it
    fish --no-config -c 'plumb completion fish | source; complete -C $argv[1]' -- "$1" 2> /dev/null |
      cut -f 1 | sed -e 's/^--[a-z]*=//' -e 's/^[^=]*=\(.\)/\1/' | grep -vxF 'models\ dir/' | grep -vxF 'models dir/' || true
  }
  try fish
else
  echo "fish is not installed: not tried" >&2
fi

if command -v zsh > /dev/null; then
  # zsh runs in a terminal of its own, and the matches of compadd are its answers.
  cat > ask.zsh << 'END'
zmodload zsh/zpty
zpty -b z zsh -f -i
reply() { local text; while zpty -r z text; do [[ $text == *$1* ]] && break; done }
zpty -w z "PS1= RPS1= ; unsetopt zle_bracketed_paste 2> /dev/null; autoload -U compinit; compinit -u -d $HOME/dump
compadd() {
  local -a found; builtin compadd -O found \"\$@\"; print -l -r -- \$found >> $HOME/found
  builtin compadd \"\$@\"
}
_plumb_done() { zle list-choices; print >> $HOME/done }
zle -N _plumb_done; bindkey '^I' _plumb_done
source <(plumb completion zsh); print rea''dy"
reply ready
zpty -n -w z "$1"$'\t'
for (( i = 0; i < 300; ++i )); do [[ -e $HOME/done ]] && break; sleep 0.1; done
[[ -e $HOME/done ]] || { print -u2 no answer; exit 1 }
zpty -d z
END
  ask_zsh() {
    rm -f "$HOME/found" "$HOME/done"
    zsh -f ask.zsh "$1" > /dev/null || return
    if [ -e "$HOME/found" ]; then grep -v '^$' "$HOME/found" | sed 's/^[^=]*=\(.\)/\1/' | sort -u | grep -vxE 'models dir/?|ask.zsh' || true; fi
  }
  try zsh
else
  echo "zsh is not installed: not tried" >&2
fi
for shell in bash zsh fish; do
  "$plumb" completion "$shell" | cmp - "$scripts/plumb.$shell"
done
"$plumb" completion tcsh > /dev/null 2> err && fail "tcsh has no script"
[ "$tried" -gt 0 ]
