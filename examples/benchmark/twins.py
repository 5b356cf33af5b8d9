#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the placements of a list that are different models, separated by commas.

    twins.py PLUMB FILE PLACEMENT,.. MODEL [--set FIELD=VALUE ..]

Two placements are the same model if `plumb explain` shows equal graphs for them, in any order of the nodes, and `plumb describe`
equal tensors with equal initial values: only the first one is printed. FILE gets the others as JSON, each with the first.
"""
import hashlib
import json
import re
import subprocess
import sys

NODE = re.compile(r"(\w+)(?:\((.*?)\))?(?: (\{.*\}))?$")


def digest(*parts):
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def graph_key(text):
    """Returns a key of what a graph computes. Only parameters and inputs count by their names."""
    keys, read = {}, set()
    for line in text.splitlines():
        left, separator, right = line.partition(" = ")
        node = NODE.match(right)
        if not separator or not node:
            continue
        op, given, attributes = node.groups()
        operands = re.findall(r"%\d+", given or "")
        read.update(operands)
        name = left if given is None else ""
        types = re.sub(r"(%\d+) (\S+\[.*?\])[^,]*", r"\2", left)
        node_key = digest(op, given and re.sub(r"%\d+", "%", given) or "", attributes or "", types, re.sub(r"%\d+ ", "", name),
                          *(keys[operand] for operand in operands))
        for output, value in enumerate(re.findall(r"%\d+", left)):
            keys[value] = digest(node_key, str(output))
    if not keys:
        sys.exit("no graph in the output of plumb explain")
    return digest(*sorted(key for value, key in keys.items() if value not in read))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    plumb, path, placements, *model = sys.argv[1:]
    firsts, twins = {}, {}
    for placement in placements.split(","):
        def show(command, *options):
            arguments = [plumb, command, *model, "--set", f"model.block.placement={placement}", *options]
            return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout

        tensors = [[tensor[field] for field in ("name", "shape", "init")]
                   for tensor in json.loads(show("describe", "--json"))["tensors"]]
        key = digest(graph_key(show("explain", "--stage", "graph")), json.dumps(sorted(tensors)))
        if firsts.setdefault(key, placement) != placement:
            twins[placement] = firsts[key]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(twins, file)
    print(",".join(placement for placement in placements.split(",") if placement not in twins))


if __name__ == "__main__":
    main()
