# SPDX-License-Identifier: Apache-2.0
"""Compares two placements on names at two learning rates: python compare.py NAMES OUT [STEPS]"""
import sys

import plumb_runtime as plumb


def main() -> None:
    names, out = sys.argv[1:3]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    statements = {"pre": "x = x + f(norm(x))", "peri": "x = x + norm_out(f(norm_in(x)))"}
    models = {name: plumb.placement(each, end="x = norm(x)", name=name).spec(
                  n_layer=8, n_head=4, d_model=16, context_length=16)
              for name, each in statements.items()}
    study = plumb.compare(models, names, out=out, seeds=4, set={"train.max_steps": steps},
                          grid={"train.learning_rate": [0.003, 0.01]})
    print(study.conclusion)
    for row in study.best():
        print(f"{row['model']:6} at {row['cell']}: {row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f})")


if __name__ == "__main__":
    main()
