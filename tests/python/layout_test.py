# SPDX-License-Identifier: Apache-2.0
"""Compares the declarations of the Python package with plumb.h and plumb/norm_plugin.h: sizes of structs, the offset of
every field, and the arguments of every function.

layout_test.py COMPILER_AND_FLAGS ..    with the headers in the flags
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

from plumb_runtime import _library, _norm_abi, _structs

HEADERS = '#include "plumb.h"\n#include "plumb/norm_plugin.h"\n'
# Functions of plumb.h that the package does not call: they are for ranks, for foreign checkpoints, and for programs that
# report a norm that crashes.
NOT_CALLED = {"current_plugin_call", "plugin_calls", "model_map_tensors", "trainer_share_states", "evaluator_set_types"}
KINDS = {"int32_t": ctypes.c_int32, "plumb_status": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
         "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "double": ctypes.c_double,
         "void": None}


def c_name(struct):
    return "plumb" + re.sub(r"([A-Z])", lambda match: "_" + match.group().lower(), struct.__name__)


def compare_structs(compiler):
    """Returns differences, as texts."""
    abi = [each for each in vars(_norm_abi).values()
           if isinstance(each, type) and issubclass(each, ctypes.Structure)]
    structs = {c_name(struct): struct for struct in [*_structs.Struct.__subclasses__(), *abi]}
    assert len(structs) >= 18, len(structs)
    program, expected = ["#include <stddef.h>", "#include <stdio.h>", HEADERS, "int main(void) {"], []
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
    assert len(found) == len(expected)
    return [f"header: {there}, package: {here}" for there, here in zip(found, expected) if there != here]


def kind_of(declaration):
    """Returns "pointer", or the ctypes type of a C type with or without a name."""
    if "*" in declaration or "_fn" in declaration:
        return "pointer"
    return KINDS[next(word for word in declaration.split() if word != "const")]


def python_kind(declared):
    if declared is None or declared in KINDS.values():
        return declared
    return "pointer"


def compare_functions(compiler):
    """Returns differences, as texts."""
    text = subprocess.run([*compiler, "-E", "-P", "-D__attribute__(x)=", "-xc", "-"], input=HEADERS, check=True,
                          capture_output=True, text=True).stdout
    declared = {}
    for returned, name, arguments in re.findall(r"(?m)^\s*((?:const )?\w+ ?\*?)\s*\bplumb_(\w+)\(([^;{]*)\);", text):
        # The parameters of a parameter that is a function do not matter.
        arguments = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"*\1", arguments)
        kinds = [] if arguments.strip() == "void" else [kind_of(each) for each in arguments.split(",")]
        declared[name] = (kinds, kind_of(returned))
    declared.pop("norm_plugin_v1")
    package = {name: ([*map(python_kind, arguments), "pointer"], ctypes.c_int32)
               for name, arguments in _library.STATUS.items()}
    package.update({name: (list(map(python_kind, arguments)), python_kind(returned))
                    for name, (arguments, returned) in _library.PLAIN.items()})
    package.update({f"{kind}_free": (["pointer"], None) for kind in _library.FREED})
    assert len(declared) > 80, len(declared)
    return [f"plumb_{name}: header {declared.get(name)}, package {package.get(name)}"
            for name in sorted({*declared, *package} - NOT_CALLED) if declared.get(name) != package.get(name)]


def main(compiler):
    wrong = compare_structs(compiler) + compare_functions(compiler)
    abi = subprocess.run([*compiler, "-E", "-P", "-xc", "-"], input=HEADERS + "PLUMB_ABI_VERSION", check=True,
                         capture_output=True, text=True).stdout.split()[-1]
    if abi != f"{_library.ABI_VERSION}u":
        wrong.append(f"PLUMB_ABI_VERSION: header {abi}, package {_library.ABI_VERSION}")
    if wrong:
        sys.exit("\n".join(wrong))
    print("the package declares the structs and functions of the headers")


main(sys.argv[1:])
