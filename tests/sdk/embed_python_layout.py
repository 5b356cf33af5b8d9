# SPDX-License-Identifier: Apache-2.0
"""Compares the structs of plumb.py with those of plumb.h: sizes, and the offset of every field.

embed_python_layout.py COMPILER_AND_FLAGS ..    with plumb.py in the path and plumb.h in the flags
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

import plumb


def c_name(struct):
    return "plumb" + re.sub(r"([A-Z])", lambda match: "_" + match.group().lower(), struct.__name__.lstrip("_"))


def main(compiler):
    structs = {c_name(struct): struct for struct in plumb._Struct.__subclasses__()}
    program = ["#include <stddef.h>", "#include <stdio.h>", '#include "plumb.h"', "int main(void) {"]
    expected = []
    for name, struct in structs.items():
        program.append(f'  printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, _ in struct._fields_:
            program.append(f'  printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            expected.append(f"{name}.{field} {getattr(struct, field).offset}")
    with tempfile.TemporaryDirectory() as work:
        source, binary = os.path.join(work, "layout.c"), os.path.join(work, "layout")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join(program + ["  return 0;", "}", ""]))
        subprocess.run([*compiler, source, "-o", binary], check=True)
        found = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = [f"plumb.h: {there}, plumb.py: {here}" for there, here in zip(found, expected) if there != here]
    if len(structs) < 10 or len(found) != len(expected) or wrong:
        sys.exit("\n".join(wrong) or f"{len(structs)} structs, {len(found)} of {len(expected)} lines")
    print(f"{len(structs)} structs have the layout of plumb.h")


main(sys.argv[1:])
