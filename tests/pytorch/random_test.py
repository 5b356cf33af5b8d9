# SPDX-License-Identifier: Apache-2.0
"""Compares the PyTorch code of models with random formulas with plumb. Skipped without torch.

    random_test.py RANDOM_MODELS COUNT [FIRST_SEED]
"""
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

import golden_test
import plumb_runtime as plumb

TOLERANCE = 1e-4


def is_stable(module, given, rounded):
    """Returns true if float32 is enough: some formulas overflow or magnify rounding."""
    try:
        exact = golden_test.compute(module, given, torch.float64)
    except RuntimeError:  # a matrix product of a comparison, which is float32
        return True
    if not max(golden_test.largest(tensor) for tensor in exact.values()) < 1e4:
        return False
    try:
        golden_test.compare(rounded, exact, TOLERANCE / 4)
    except AssertionError:
        return False
    return True


def main(program, count, first="1"):
    torch.set_num_threads(1)
    models = subprocess.run([program, first, count], check=True, capture_output=True, text=True).stdout
    runtime, counts, failures, refusals = plumb.Runtime(), {"equal": 0, "invalid": 0, "unstable": 0, "refused": 0}, [], set()
    for block in models.split("# seed ")[1:]:
        seed, _, text = block.partition("\n")
        try:
            model = plumb.Model(runtime, plumb.Spec(text), seed=1)
        except plumb.Error:
            counts["invalid"] += 1
            continue
        try:
            code = model.explain("pytorch")
        except plumb.Error as error:
            counts["refused"] += 1
            refusals.add(str(error))
            continue
        try:
            module, expected = golden_test.run_code(code), golden_test.compute_with_plumb(model)
            rounded = golden_test.compute(module, expected)
            if not is_stable(module, expected, rounded):
                counts["unstable"] += 1
                continue
            golden_test.compare(rounded, expected, TOLERANCE)
            counts["equal"] += 1
        except Exception as error:  # any error of the code is a failure of its model
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
    print(counts)
    for refusal in sorted(refusals):
        print("refused:", refusal)
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures or counts["equal"] < int(count) // 3 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
