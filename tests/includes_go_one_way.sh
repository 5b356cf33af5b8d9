#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that includes go one way down the list of modules (runtime/README.md), that each third-party library
# is included only by its module, that files and folders do not include each other in circles, and that the
# runtime names no placement and no norm that ships with plumb. Prints every violation as file:line and fails
# if there is one.
#
#   tests/includes_go_one_way.sh [SOURCE_DIRECTORY]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

sources() { find "$@" -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cc' \) | sort; }

# Prints "file:line: <header>" or "file:line: "header"" for every include. -H prints the name of a single
# file, too.
includes() {
  sources "$@" |
    xargs -r grep -HnoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*(<[^>]*>|"[^"]*")' |
    sed -E 's/^([^:]*:[0-9]+:).*include[[:space:]]*/\1 /'
}

wrong_includes() {
  includes runtime plugins cli proto | awk '
    BEGIN {
      order = "base ranks onednn kernels graph plugin ops formats tokenizer data schema spec zoo model picture pytorch compile session capi client train study report convert runs"
      count = split(order, modules, " ")
      for (i = 1; i <= count; ++i) {
        known[modules[i]] = 1
        for (j = 1; j <= i; ++j) may[modules[i], modules[j]] = 1
      }
      only("ranks", "base")
      only("onednn", "base")
      only("kernels", "base onednn")
      only("graph", "base")
      only("plugin", "base")
      only("ops", "base kernels graph plugin")
      only("formats", "base")
      only("tokenizer", "base formats")
      only("data", "base formats tokenizer")
      only("schema", "base")
      only("spec", "base plugin schema")
      only("zoo", "base formats spec schema")
      only("model", "base kernels graph plugin ops spec")
      only("picture", "base plugin spec")
      only("pytorch", "base graph plugin ops spec model")
      only("compile", "base graph")
      # These are clients of plumb.h, which computes, and use the modules of files, data and the schema.
      only("client", "base ranks formats tokenizer data schema")
      only("train", "client base ranks formats tokenizer data schema zoo")
      only("study", "train client base ranks formats data schema")
      only("report", "study train client base ranks formats")
      only("convert", "train client base formats tokenizer data schema zoo")
      # The functions of plumb.h about runs and studies are above them.
      only("runs", "base capi client train study report")
      count = split("client train study report convert", above, " ")
      for (i = 1; i <= count; ++i) is_client[above[i]] = 1
    }
    function only(module, allowed,   names, n, i) {
      for (i = 1; i <= count; ++i) delete may[module, modules[i]]
      may[module, module] = 1
      n = split(allowed, names, " ")
      for (i = 1; i <= n; ++i) may[module, names[i]] = 1
    }

    # Returns the folders that may include a third-party header, or "" if all may.
    function owners(header) {
      if (header == "mpi.h") return "runtime/ranks/mpi"
      if (header ~ /(^|\/)dnnl/) return "runtime/onednn"
      if (header == "dlfcn.h") return "runtime/ranks runtime/onednn runtime/plugin runtime/capi plugins/check cli"
      if (header ~ /^google\/protobuf\// || header ~ /\.pb\.h$/) return "runtime/schema/compiler"
      if (header ~ /^plumb\/v1\//) return "runtime/spec runtime/client runtime/train runtime/study runtime/report runtime/convert runtime/zoo"
      if (header ~ /^hwy\//) return "runtime/kernels runtime/ops"
      if (header ~ /^nlohmann\//) return "runtime/formats runtime/tokenizer runtime/capi runtime/client runtime/train runtime/study runtime/report runtime/convert runtime/zoo cli plugins/check"
      if (header == "pcre2.h") return "runtime/tokenizer"
      if (header ~ /^CLI\//) return "cli plugins/check"
      return ""
    }
    function starts(text, prefix) { return substr(text, 1, length(prefix)) == prefix }
    function within(file, folders,   names, n, i) {
      n = split(folders, names, " ")
      for (i = 1; i <= n; ++i) if (starts(file, names[i] "/")) return 1
      return 0
    }
    # Returns 1 for a header of the C++ or C library or of the system: <vector>, <stdint.h>, <sys/stat.h>.
    function is_system(include) {
      return include ~ /^<([a-z_0-9]+(\.h)?|(sys|linux)\/[a-z_0-9]+\.h)>$/
    }
    function is_norm_abi(header) { return header ~ /^plumb\/(norm_plugin|ext\/[a-z_]+)\.h$/ }
    function wrong(why) { print place ": includes " include ": " why }

    {
      place = $1; include = $2
      sub(/:$/, "", place)
      file = place; sub(/:[0-9]+$/, "", file)
      directory = file; sub(/[^\/]*$/, "", directory)
      header = substr(include, 2, length(include) - 2)
      target = split(header, part, "/") > 2 && part[1] == "runtime" ? part[2] : ""
      owner = owners(header)

      if (starts(file, "plugins/abi/")) {
        # types.h is below norm_plugin.h, which is below the extensions and norm_rows.h.
        rows = file ~ /norm_rows[a-z_]*\.h$/ && include ~ /^("plumb\/(norm_[a-z_]+|ext\/[a-z_]+)\.h"|<(math|stdio|string|immintrin)\.h>)$/
        core = file ~ /norm_plugin\.h$/ && header == "plumb/types.h" || file ~ /\/ext\/[a-z_]+\.h$/ && header == "plumb/norm_plugin.h"
        if (!rows && !core && include != "<stddef.h>" && include != "<stdint.h>") wrong("the norm ABI stands alone")
      } else if (owner != "" && !within(file, owner)) {
        wrong("only " owner " may")
      } else if (starts(file, "plugins/check/")) {
        if (!starts(header, "plugins/check/") && !starts(header, "runtime/base/") &&
            header !~ /^runtime\/plugin\/(elf_note|descriptor)\.h$/ && !is_norm_abi(header) &&
            !starts(header, "absl/") && owner == "" && !is_system(include))
          wrong("the checker sees the norm ABI, runtime/base and the readers of ELF notes and descriptors")
      } else if (starts(file, "plugins/")) {
        own = include ~ /^"[^\/]*"$/ && system("test -f " directory header) == 0
        if (!own && !is_norm_abi(header) && header != "plumb/norm_rows.h" && owner == "" && !is_system(include))
          wrong("a norm sees the norm ABI, plumb/norm_rows.h and the standard library")
      } else if (file ~ /^runtime\/include\/.*\.hpp$/) {
        if (header != "plumb.h" && header !~ /^plumb\/[a-z_]+\.hpp$/ && !is_system(include))
          wrong("plumb.hpp sees plumb.h and the standard library")
      } else if (starts(file, "runtime/schema/compiler/")) {
        if (owner == "" && !is_system(include))
          wrong("the compiler of the schema sees protobuf and the standard library")
      } else if (starts(file, "runtime/include/")) {
        if (header != "plumb/types.h" && !is_system(include))
          wrong("plumb.h sees plumb/types.h and the standard library")
      } else if (starts(file, "cli/")) {
        if (!starts(header, "cli/") && !(target in is_client) && target != "base" && target != "ranks" && !starts(header, "absl/") &&
            owner == "" && !is_system(include))
          wrong("the command line uses the clients of plumb.h, runtime/base and runtime/ranks")
      } else {
        module = file; sub(/^runtime\//, "", module); sub(/\/.*/, "", module)
        if (!(module in known)) {
          wrong("runtime/" module " is not on the list of modules in this script")
        } else if (target != "") {
          if (!((module, target) in may)) wrong("runtime/" module " may not include runtime/" target)
        } else if (is_norm_abi(header)) {
          if (!((module, "plugin") in may)) wrong("runtime/" module " does not know plugins")
        } else if (header == "plumb.h" || header == "plumb.hpp") {
          if (module != "ranks" && module != "capi" && !(module in is_client) && module != "runs") wrong("plumb.h is above runtime/" module)
        } else if (starts(file, "runtime/ranks/mpi/") && header == "plumb_mpi.h") {
          next  # compiled next to its header by any user of any MPI
        } else if (owner == "" && !starts(header, "absl/") && !is_system(include)) {
          wrong("not a path from the top of the repository, nor a known library")
        }
      }
    }'
}

# Prints the circles of includes among files (foo.h, foo.cc and foo-inl.h are one) and among folders of
# runtime/, each with the includes that close it.
include_circles() {
  includes runtime | python3 -c '
import collections, os, re, sys

includes = re.findall(r"(runtime/(\S+):\d+): \"(runtime/\S+)\"", sys.stdin.read())
for kind in "files", "folders":
    edges = collections.defaultdict(lambda: collections.defaultdict(list))
    for place, file, header in includes:
        ends = ["runtime/" + file, header]
        if kind == "folders":
            ends = [os.path.dirname(end) for end in ends]
        else:
            ends = [re.sub(r"(-inl)?\.(h|cc)$", "", end) for end in ends]
        if ends[0] != ends[1]:
            edges[ends[0]][ends[1]].append(f"  {place}: includes {header}")
    reached = {}
    for start in list(edges):
        reached[start], todo = set(), [start]
        while todo:
            new = edges.get(todo.pop(), {}).keys() - reached[start]
            reached[start] |= new
            todo += new
    circles = {tuple(sorted(b for b in reached[a] if a in reached.get(b, ()))) for a in reached if a in reached[a]}
    for circle in sorted(circles):
        print(f"circle of {kind}:", *circle)
        for a in circle:
            print(*(line for b in circle for line in edges[a].get(b, ())), sep="\n")
'
}

# Prints string literals in the code of runtime/ (without comments) that are the name of a shipped placement
# or norm. Returning the word "none" is not a name.
shipped_names() {
  local names
  names=$(
    for file in plugins/placements/*.pbtxt; do basename "$file" .pbtxt; done
    for file in plugins/norms/*/*.c; do basename "$file" .c; done
  )
  sources runtime | grep -v "^runtime/schema/compiler/" | xargs -r grep -Hn '"' | awk -v names="$names" '
    BEGIN { n = split(names, list, "\n"); for (i = 1; i <= n; ++i) shipped[list[i]] = 1 }
    {
      match($0, /^[^:]*:[0-9]+:/)
      place = substr($0, 1, RLENGTH - 1); code = substr($0, RLENGTH + 1)
      if (code ~ /^[[:space:]]*#[[:space:]]*include/) next
      sub(/return "none";/, "", code)
      # This is a route of a model description.
      sub(/route == "none"/, "", code)
      # These are functions in formulas whose names differ in plumb.
      sub(/\{"(dropout|stochastic_depth)", "write /, "{\"", code)
      # This is a field of tokenizer.json.
      sub(/fields\.Only\("dropout"/, "", code)
      # Literals are read from the left, so that "//" inside one does not count as a comment.
      while (match(code, /\/\/|"([^"\\]|\\.)*"/)) {
        token = substr(code, RSTART, RLENGTH)
        if (token == "//") break
        code = substr(code, RSTART + RLENGTH)
        word = substr(token, 2, length(token) - 2)
        if (word in shipped) print place ": names " token ": placements and norms are data"
      }
    }'
}

violations=$(wrong_includes && include_circles && shipped_names) || {
  echo "the sources could not be read" >&2
  exit 1
}
if [ -n "$violations" ]; then
  printf '%s\n' "$violations" >&2
  printf "violations: %d\n" "$(grep -c '^[^ ]' <<< "$violations")" >&2
  exit 1
fi
