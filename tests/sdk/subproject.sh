#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plumb as a part of a host's build, by add_subdirectory and by FetchContent: the host's settings do not
# change, its files get none of plumb's flags, plumb's files compile under the host's strict flags, and
# nothing of plumb is tested, installed or built without a request of the host.
#   subproject.sh SOURCE_DIRECTORY
#
# Configures both, and compiles one file, one norm and a program of the host. The rest of libplumb.so has the
# same flags, as compile_commands.json shows, and would take minutes.
set -euo pipefail
source=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CFLAGS CXXFLAGS LDFLAGS CC CXX CMAKE_BUILD_TYPE
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

mkdir "$work/host"
cp "$source/examples/embed_c/main.c" "$work/host/main.c"
echo 'int main() { return 0; }' > "$work/host/other.cc"
cat > "$work/host/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.25)
project(host VERSION 3.1 LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
set(BUILD_SHARED_LIBS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_UNITY_BUILD ON)
add_compile_options(-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wundef -Wshadow -Werror
  -ffast-math -funsigned-char -fvisibility=hidden
  "$<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions;-fno-rtti;-fno-threadsafe-statics>")
find_package(Protobuf REQUIRED)
find_package(GTest)

# Writes every variable and the properties that a directory passes on, before and after.
function(host_state file)
  get_cmake_property(names VARIABLES)
  list(FILTER names EXCLUDE REGEX "^(ARG[CNV]|_|file$|names$|CMAKE_CURRENT_FUNCTION|HOST_|PLUMB_|plumb_|FETCHCONTENT_|GTest_|.*_(DIR|BINARY_DIR|SOURCE_DIR|IS_TOP_LEVEL)$|CMAKE_INSTALL_(SYSCONF|BIN|DATA|DATAROOT|DOC|INCLUDE|INFO|LIB|LIBEXEC|LOCALE|LOCALSTATE|MAN|OLDINCLUDE|RUNSTATE|SBIN|SHAREDSTATE)DIR$)")
  set(text)
  foreach(name IN LISTS names)
    string(APPEND text "${name}=${${name}}\n")
  endforeach()
  foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES LINK_OPTIONS LINK_DIRECTORIES)
    get_directory_property(value ${property})
    string(APPEND text "directory ${property}=${value}\n")
  endforeach()
  file(WRITE "${CMAKE_BINARY_DIR}/${file}" "${text}")
endfunction()
host_state(before)
if(HOST_FETCHES)
  include(FetchContent)
  FetchContent_Declare(plumb SOURCE_DIR "${HOST_PLUMB}")
  FetchContent_MakeAvailable(plumb)
else()
  add_subdirectory("${HOST_PLUMB}" plumb)
endif()
host_state(after)

add_executable(host main.c)
target_link_libraries(host PRIVATE plumb::plumb)
add_executable(other other.cc)
# Writes the tests that the host would inherit from plumb.
get_directory_property(tests TESTS)
file(WRITE "${CMAKE_BINARY_DIR}/tests" "${tests}")
END

for way in OFF ON; do
  out="$work/build_$way"
  cmake -S "$work/host" -B "$out" -G Ninja -DHOST_PLUMB="$source" -DHOST_FETCHES=$way > "$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "the host does not configure"; }
  # Packages that plumb searches for add variables with their own names. Variables of the host and of CMake
  # must not change.
  diff <(grep -E '^(CMAKE_|BUILD_|directory |host_|[a-z_]*=)' "$out/before") \
       <(grep -E '^(CMAKE_|BUILD_|directory |host_|[a-z_]*=)' "$out/after") ||
    fail "plumb changes the host's settings"

  # plumb's only own cache variables are PLUMB_*. The others belong to packages that it searched for, to
  # CMake's installation directories, and to the paths of projects.
  added=$(sed -nE 's/^([A-Za-z][A-Za-z0-9_.-]*):([A-Z]+)=.*/\2 \1/p' "$out/CMakeCache.txt" | grep -vE '^(INTERNAL|STATIC)' |
    awk '{print $2}' | grep -vE '^(PLUMB_|HOST_|CMAKE_|FETCHCONTENT_|Protobuf_|OpenMP_|OpenCL_)|_DIR$' || true)
  [ -z "$added" ] || fail "variables in the host's cache: $added"
  [ -z "$(sed -n 's/^CMAKE_BUILD_TYPE:STRING=//p' "$out/CMakeCache.txt")" ] || fail "a build type is set"

  python3 - "$out" "$source" << 'END'
import json, os, sys
out, source = sys.argv[1:]
commands = json.load(open(out + "/compile_commands.json"))
def fail(text): sys.exit("FAILED: " + text)
hosts = [c for c in commands if c["file"].startswith((out + "/CMakeFiles", os.path.dirname(out) + "/host"))]
ours = [c for c in commands if c not in hosts]
if len(hosts) != 2 or len(ours) < 20: fail("%d files of the host and %d of plumb" % (len(hosts), len(ours)))
for c in hosts:
    for flag in ("-ffp-contract", "-fno-fast-math", "-fsigned-char", "-fexceptions", "-frtti", "-fthreadsafe-statics", "-fstack-protector", "-D_FORTIFY_SOURCE", "-Og", "-O2", " -w ",
                 "-std=c++17", "-std=c11", "absl"):
        if flag in c["command"]: fail("%s in the host's %s" % (flag, c["command"]))
for c in ours:
    words = c["command"].split()
    # -w comes after the host's -Werror and disables all warnings.
    if "-w" not in words: fail("plumb's files warn in a host: " + c["command"])
    pairs = [("-ffast-math", "-fno-fast-math"), ("-funsigned-char", "-fsigned-char")]
    if c["file"].endswith(".cc"):
        pairs += [("-fno-" + name, "-f" + name) for name in ("exceptions", "rtti", "threadsafe-statics")]
    for host, own in pairs:
        if own not in words or words.index(host) > words.index(own): fail("the host's %s applies: %s" % (host, c["command"]))
    if c["file"].endswith(".cc") and "-std=c++17" not in words: fail("not C++17: " + c["command"])
    if not any(w in words for w in ("-O2", "-Og", "-O3")): fail("not optimized: " + c["command"])
if any(c["file"].startswith(tuple(source + folder for folder in ("/tests/", "/bench/", "/cli/", "/plugins/check/"))) for c in ours):
    fail("tests, benchmarks or the tool are built")
END
  [ ! -s "$out/tests" ] || fail "plumb's tests are the host's"
  [ ! -e "$out/plumb/CTestTestfile.cmake" ] || ! grep -q add_test "$out/plumb/CTestTestfile.cmake" || fail "there are tests"

  # No installation script contains a file.
  if grep -rhE 'file\(INSTALL' --include=cmake_install.cmake "$out"; then fail "plumb installs itself"; fi

  # A host that wants to install plumb sets an option.
  cmake "$out" -DPLUMB_INSTALL=ON > /dev/null
  grep -rqE 'file\(INSTALL.*libplumb' --include=cmake_install.cmake "$out" || fail "PLUMB_INSTALL=ON installs nothing"
done

# Files of the library, with exceptions and dynamic_cast, and a norm with Highway compile with the host's flags.
ninja -C "$work/build_OFF" plumb/runtime/capi/CMakeFiles/plumb_capi.dir/tokenizer.cc.o plumb_norm_rms_norm other \
  plumb/runtime/base/CMakeFiles/plumb_base.dir/file.cc.o plumb/runtime/ops/CMakeFiles/plumb_ops.dir/norm_rows.cc.o > "$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "plumb does not build in a strict host"; }
grep -q 'LINK_LIBRARIES = .*libplumb.so' <(grep -A12 '^build host:' "$work/build_OFF/build.ninja") || fail "the host does not link libplumb.so"
