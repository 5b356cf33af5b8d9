# Completion of plumb for bash 4.4 or newer. The program returns the candidates; the shell completes
# files.
_plumb() {
  local current=${COMP_WORDS[COMP_CWORD]} answer word
  # bash splits at "=" and makes it a separate word.
  [ "$current" != = ] || current=
  mapfile -t answer < <("${1/#\~/$HOME}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  COMPREPLY=()
  for word in "${answer[@]:1}"; do COMPREPLY+=("${word%%$'\t'*}"); done
  # A field of --set is followed by its value.
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2> /dev/null
  case ${answer[0]-} in
    files | directories | models) compopt -o filenames 2> /dev/null ;;
  esac
  case ${answer[0]-} in
    files) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current") ;;
    directories) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$current") ;;
    models)
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -X '!*.pbtxt' -- "$current"; compgen -d -- "$current")
      ;;
  esac
}
complete -F _plumb plumb
