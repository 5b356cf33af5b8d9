#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the type hints of the Python package and the notebooks' code by mypy --strict, and by pyright if it is
# installed, and that a user's wrong types are found. Skipped (77) without mypy 1.14 or later (the first with types of
# memoryview's elements) and numpy, for one Python.
#   types_test.sh SOURCE_DIRECTORY PYTHON
set -euo pipefail
source=$1 python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -c '
import mypy.version, numpy, sys
sys.exit([int(part) for part in mypy.version.__version__.split(".")[:2]] < [1, 14])' 2> /dev/null; then
  echo "skipped: $python has no mypy 1.14 or later, or no numpy"
  exit 77
fi
check() { MYPYPATH="$source/runtime/python" "$python" -m mypy --strict --cache-dir "$work/cache" "$@"; }
check "$source/runtime/python/plumb_runtime"
cat > "$work/right.py" << 'END'
import numpy
from numpy.typing import NDArray

import plumb_runtime as plumb


@plumb.norm("org.example.twice")
def twice(x: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    return 2 * x


model = plumb.Model(plumb.Runtime(), plumb.Spec("n_layer: 1"), seed=1)
mean: float = float(model.tensor(0).numpy().mean())
twice.check()
ids = numpy.zeros((2, 8), dtype=numpy.int64)
loss: float = plumb.Trainer(model).step(ids, ids.tolist()).loss
with plumb.Session(model) as session:
    session.feed([1, 2])
    tokens: list[int] = list(session.stream(max_tokens=3))
END
check "$work/right.py"
for notebook in "$source"/examples/notebooks/*.ipynb; do
  "$python" "$source/tests/python/notebooks_test.py" --code "$notebook" > "$work/$(basename "$notebook" .ipynb).py"
  check "$work/$(basename "$notebook" .ipynb).py"
done
if "$python" -c 'import pyright' 2> /dev/null; then
  # The link makes the package the user's own code, in which pyright reports errors.
  ln -s "$source/runtime/python/plumb_runtime" "$work/plumb_runtime"
  (cd "$work" && "$python" -m pyright --level error --pythonpath "$(command -v "$python")" .)
else
  echo "pyright is not installed: it is not run"
fi
cat > "$work/wrong.py" << 'END'
import plumb_runtime as plumb

plumb.Session(3)
model = plumb.Model(plumb.Runtime(), "n_layer: 1")
step: str = plumb.Trainer(model).step([1], [2]).step
END
check "$work/wrong.py" > "$work/found" && { echo "wrong types are not found" >&2; exit 1; }
for line in 3 4 5; do
  grep -q "wrong.py:$line: error" "$work/found" || { cat "$work/found" >&2; exit 1; }
done
