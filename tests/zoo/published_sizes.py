# SPDX-License-Identifier: Apache-2.0
"""Checks that `plumb describe` counts exactly the published parameters of every shipped model.

published_sizes.py PLUMB MODELS, the binary and the directory plugins/zoo.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def counted(plumb, model):
    """Returns the number of `plumb describe` and the sum over its tensors."""
    run = subprocess.run([plumb, "describe", model, "--json"], capture_output=True, text=True,
                         timeout=120)
    if run.returncode != 0:
        return run.stderr.strip(), 0
    described = json.loads(run.stdout)
    return described["totals"]["parameters"], sum(t["elements"] for t in described["tensors"])


def main():
    plumb, folder = sys.argv[1:]
    with open(os.path.join(HERE, "published_sizes.json"), encoding="utf-8") as file:
        published = json.load(file)
    shipped = {name[:-len(".pbtxt")] for name in os.listdir(folder)
               if name.endswith(".pbtxt") and not name.endswith((".import.pbtxt", ".part.pbtxt"))}
    wrong = [f"{name}: has no published size here" for name in sorted(shipped - published.keys())]
    wrong += [f"{name}: is not in {folder}" for name in sorted(published.keys() - shipped)]
    for name in sorted(shipped & published.keys()):
        total, of_tensors = counted(plumb, os.path.join(folder, name + ".pbtxt"))
        if not total == of_tensors == published[name]:
            wrong.append(f"{name}: {total}, of tensors {of_tensors}, published {published[name]}")
    for line in wrong:
        print(line)
    print(f"{len(shipped)} models, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
