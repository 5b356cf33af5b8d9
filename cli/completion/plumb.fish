# Completion of plumb for fish. The program returns the candidates; the shell completes files.
function __plumb_complete
    set -l given (commandline -opc)
    set -l program $given[1]
    set -e given[1]
    set -l current (commandline -ct)
    set -l prefix
    if string match -qr -- '^--[^=]+=' $current
        set prefix (string replace -r -- '=.*$' '=' $current)
        set -a given (string trim -r -c = -- $prefix) =
        set current (string replace -r -- '^--[^=]+=' '' $current)
    end
    set -l answer ($program __complete -- $given "$current" 2>/dev/null)
    test (count $answer) -gt 0; or return
    for line in $answer[2..-1]
        printf "%s\n" "$prefix$line"
    end
    switch $answer[1]
        case files
            for path in (__fish_complete_path "$current")
                printf "%s\n" "$prefix$path"
            end
        case models
            for path in (__fish_complete_suffix "$current" .pbtxt)
                printf "%s\n" "$prefix$path"
            end
        case directories
            for path in (__fish_complete_directories "$current" '')
                printf "%s\n" "$prefix$path"
            end
    end
end
complete -c plumb -f -a '(__plumb_complete)'
