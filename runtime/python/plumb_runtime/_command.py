# SPDX-License-Identifier: Apache-2.0
"""Path of the program `plumb` that belongs to the package."""
from __future__ import annotations

import os
import shutil

from ._library import prefix


def program() -> str:
    """Returns the path of the program: of the environment variable PLUMB, of the wheel or the prefix of the package, or
    on the PATH. Raises FileNotFoundError."""
    if os.environ.get("PLUMB"):
        return os.environ["PLUMB"]
    found = os.path.join(prefix(), "bin", "plumb") if prefix() else shutil.which("plumb")
    if found is None:
        raise FileNotFoundError("the program plumb is neither in the package's prefix nor on the PATH; set its path in "
                                "the variable PLUMB")
    return found
