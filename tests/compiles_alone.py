#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each source and each header of the product compiles by itself. Continuous integration compiles the
sources of a module together (PLUMB_UNITY), which hides a missing #include.

    compiles_alone.py [--except BUILD] [PREFIX..]

Configures build/alone without PLUMB_UNITY, generates the schema's headers, and runs the compiler with
-fsyntax-only, the flags of the build, and warnings as errors. A header that a source includes first is checked
by that source. PREFIX (runtime/spec) selects files. Sources that the build directory BUILD compiles by
themselves are skipped. Prints the errors, and fails if there is one. Runs on all processors, or as
CMAKE_BUILD_PARALLEL_LEVEL says.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "alone")
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


def first_include(source):
    """Returns the header that a source includes first, "" if it is not one of this tree."""
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        line = next((line for line in file if line.startswith("#include")), "")
    return line.split('"')[1] if '"' in line else ""


def nearest(header, commands):
    """Returns the command of a source in the nearest folder above a header."""
    folder = header
    while folder:
        folder = os.path.dirname(folder)
        for source, command in commands.items():
            if source.startswith(folder) and source.endswith(".cc"):
                return command
    return None


def check(name, command, directory):
    """Compiles one file and returns the compiler's messages, "" without an error."""
    path, text = os.path.join(ROOT, name), None
    if name.endswith((".c", ".cc")):
        command = command + [path]
    else:  # a user of a public header has these two folders
        command = command + [f"-I{ROOT}/runtime/include", f"-I{ROOT}/plugins/abi", "-x", "c++", "-"]
        text = f'#include "{path}"\n'
    result = subprocess.run(command, cwd=directory, input=text, capture_output=True, text=True)
    return result.stderr if result.returncode else ""


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
    included = {first_include(source) for source in commands}
    jobs = [(source, *command) for source, command in commands.items() if source not in compiled]
    jobs += [(name, *nearest(name, commands)) for name in sorted(headers)
             if not name.endswith(TEMPLATES) and name not in included]
    jobs = [job for job in jobs if job[0].startswith(tuple(options.prefix))]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", os.cpu_count()))) as pool:
        for errors in pool.map(lambda job: check(*job), jobs):
            if errors:
                failed += 1
                print(errors, file=sys.stderr, flush=True)
    print(f"{len(jobs)} sources and headers compiled by themselves, {failed} with errors")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
