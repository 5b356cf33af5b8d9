# SPDX-License-Identifier: Apache-2.0
"""The command `plumb` of a wheel: runs the program bin/plumb, as `python -m plumb_runtime` does. The command
`tensorboard` is in Python."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import tensorboard
from ._command import program


def main() -> NoReturn:
    """Becomes the program, with the same arguments, or runs `tensorboard`."""
    if sys.argv[1:2] == ["tensorboard"]:
        tensorboard.main(sys.argv[2:])
        sys.exit()
    try:
        path = program()
    except FileNotFoundError as error:
        sys.exit(f"plumb: {error}")
    os.execv(path, ["plumb", *sys.argv[1:]])


if __name__ == "__main__":
    main()
