# SPDX-License-Identifier: Apache-2.0
"""The command `plumb` of a wheel: runs the program bin/plumb, as `python -m plumb` does."""
from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn

from ._library import prefix


def main() -> NoReturn:
    """Becomes the program, with the same arguments."""
    program = os.path.join(prefix(), "bin", "plumb") if prefix() else shutil.which("plumb")
    if program is None:
        sys.exit("plumb: the program is not installed; `python -m plumb` finds it in a wheel or on the PATH")
    os.execv(program, ["plumb", *sys.argv[1:]])


if __name__ == "__main__":
    main()
