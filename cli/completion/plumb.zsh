#compdef plumb
# Completion of plumb for zsh. The program returns the candidates; the shell completes files.
_plumb() {
  local -a answer given candidates fields
  local line word about
  given=("${(@Q)words[2,CURRENT-1]}")
  if [[ $PREFIX == --*=* ]]; then
    given+=("${PREFIX%%=*}" = "${(Q)PREFIX#*=}")
    compset -P '*='
  else
    given+=("${(Q)PREFIX}")
  fi
  answer=("${(@f)$(${(Q)words[1]/#\~/$HOME} __complete -- "${given[@]}" 2> /dev/null)}")
  for line in "${answer[@]:1}"; do
    word=${line%%$'\t'*} about=${line#*$'\t'}
    # A field of --set is followed by its value.
    if [[ $word == *= ]]; then fields+=("$word"); continue; fi
    candidates+=("${word//:/\\:}${about:+:$about}")
  done
  local found=1
  if (( $#fields )); then compadd -S '' -a fields && found=0; fi
  if (( $#candidates )); then _describe -V 'plumb' candidates && found=0; fi
  case ${answer[1]} in
    files) _files && found=0 ;;
    models) _files -g '*.pbtxt' && found=0 ;;
    directories) _files -/ && found=0 ;;
  esac
  return found
}
if [[ $funcstack[1] == _plumb ]]; then _plumb "$@"; else compdef _plumb plumb; fi
