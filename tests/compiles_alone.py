#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each source and each header of the product compiles by itself. Continuous integration compiles the
sources of a module together (PLUMB_UNITY), which hides a missing #include.

    compiles_alone.py [--except BUILD] [PREFIX..]

Configures build/alone without PLUMB_UNITY, generates the schema's headers, and runs the compiler with
-fsyntax-only, the flags of the build, and warnings as errors. A header that a source includes first is checked
by that source. PREFIX (runtime/spec) selects files. Sources that the build directory BUILD compiles by
themselves are skipped. Prints the first error of each file, and fails if there is one. Runs on all processors,
or as CMAKE_BUILD_PARALLEL_LEVEL says.

Two things save four fifths of the time. Large headers of libraries are precompiled for files that include them
anyway, by an include of their own or of a header of this tree. A false assertion after the last line ends the
compiler before it instantiates templates, which needs no include that the other builds do not see.
"""
import argparse
import concurrent.futures
import functools
import glob
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "alone")
LARGE = ("absl/status/statusor.h", "nlohmann/json.hpp", "CLI/CLI.hpp")
# Headers that are included after the macros that they use.
TEMPLATES = ("-inl.h", "plumb/norm_rows_impl.h", "plumb/norm_rows_vectors.h", "cross_row/cross_row.h", "dynamic/dynamic.h")


def configure():
    """Configures BUILD and generates the headers that sources include."""
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DPLUMB_UNITY=OFF", "-DPLUMB_BUILD_TESTS=OFF",
                    "-DPLUMB_BUILD_BENCH=OFF"], check=True, stdout=subprocess.DEVNULL)
    targets = subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], check=True, capture_output=True, text=True)
    headers = re.findall(r"^([^/\n].*\.h): CUSTOM_COMMAND$", targets.stdout, re.MULTILINE)
    subprocess.run(["ninja", "-C", BUILD, "--quiet", *headers], check=True)


def read_commands(build):
    """Returns {source: (its command without source and output, directory)} of a build, without generated sources."""
    commands = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            source, words = os.path.relpath(entry["file"], ROOT), shlex.split(entry["command"])
            if not source.startswith("build/"):
                commands[source] = (words[:words.index("-o")] + ["-Werror", "-fsyntax-only"], entry["directory"])
    return commands


@functools.lru_cache(maxsize=None)
def includes(name):
    """Returns what a file of this tree includes, [] for other files."""
    path = os.path.join(ROOT, name)
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^#include ["<]([^">]+)', file.read(), re.MULTILINE)


def first_include(source):
    """Returns the header that a source includes first, "" if it is not one of this tree."""
    first = next(iter(includes(source)), "")
    return first if includes(first) else ""


@functools.lru_cache(maxsize=None)
def large(name):
    """Returns those of LARGE that a file includes, itself or by headers of this tree."""
    found = {header for each in includes(name) for header in (each, *large(each))}
    return tuple(header for header in LARGE if header in found)


def precompile(jobs, pool):
    """Precompiles the large headers of jobs, for each set of them and of flags. Returns {set: the header to include}."""
    made, runs = {}, set()
    for name, command, _ in jobs:
        headers = large(name)
        if headers:
            path = os.path.join(BUILD, "large", "-".join(os.path.basename(header) for header in headers))
            flags = [word for word in command if not word.startswith(("-I", "-fsyntax-only", "-D")) or
                     word.startswith(("-DNDEBUG", "-D_FORTIFY"))]
            made[headers] = path
            runs.add((path, *flags))
    for headers, path in made.items():
        os.makedirs(path + ".gch", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"#include <{header}>\n" for header in headers)
    for result in pool.map(lambda run: subprocess.run([*run[1][1:], "-x", "c++-header", run[1][0], "-o",
                                                       f"{run[1][0]}.gch/{run[0]}"], check=False), enumerate(sorted(runs))):
        result.check_returncode()
    return made


def nearest(header, commands):
    """Returns the command of a source in the nearest folder above a header."""
    folder = header
    while folder:
        folder = os.path.dirname(folder)
        for source, command in commands.items():
            if source.startswith(folder) and source.endswith(".cc"):
                return command
    return None


def check(precompiled, name, command, directory):
    """Compiles one file and returns the compiler's messages, "" without an error."""
    language, assertion = ("c", "_Static_assert") if name.endswith(".c") else ("c++", "static_assert")
    command = command + ["-Wfatal-errors", "-x", language, "-"]
    if not name.endswith((".c", ".cc")):  # a user of a public header has these two folders
        command += [f"-I{ROOT}/runtime/include", f"-I{ROOT}/plugins/abi"]
    if large(name):
        command += ["-include", precompiled[large(name)]]
    text = f'#include "{ROOT}/{name}"\n{assertion}(0, "the end of the file");\n'
    errors = subprocess.run(command, cwd=directory, input=text, capture_output=True, text=True).stderr
    return "" if "the end of the file" in errors else errors or f"{name}: the compiler stopped without an error"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--except", metavar="BUILD", dest="other")
    parser.add_argument("prefix", nargs="*", default=[""])
    options = parser.parse_args()
    configure()
    commands = read_commands(BUILD)
    compiled = read_commands(options.other) if options.other else {}
    headers = [name for folder in ("runtime", "cli", "plugins")
               for name in glob.glob(folder + "/**/*.h*", root_dir=ROOT, recursive=True) if name.endswith((".h", ".hpp"))]
    included = {first_include(source) for source in commands if large(first_include(source)) == large(source)}
    jobs = [(source, *command) for source, command in commands.items() if source not in compiled]
    jobs += [(name, *nearest(name, commands)) for name in sorted(headers)
             if not name.endswith(TEMPLATES) and name not in included]
    jobs = [job for job in jobs if job[0].startswith(tuple(options.prefix))]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", os.cpu_count()))) as pool:
        precompiled = precompile(jobs, pool)
        for errors in pool.map(lambda job: check(precompiled, *job), jobs):
            if errors:
                failed += 1
                print(errors, file=sys.stderr, flush=True)
    print(f"{len(jobs)} sources and headers compiled by themselves, {failed} with errors")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
