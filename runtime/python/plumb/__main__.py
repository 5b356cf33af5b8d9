# SPDX-License-Identifier: Apache-2.0
"""The command `plumb` of a wheel: runs the program bin/plumb, as `python -m plumb` does."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._command import program


def main() -> NoReturn:
    """Becomes the program, with the same arguments."""
    try:
        path = program()
    except FileNotFoundError as error:
        sys.exit(f"plumb: {error}")
    os.execv(path, ["plumb", *sys.argv[1:]])


if __name__ == "__main__":
    main()
