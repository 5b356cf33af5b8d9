# SPDX-License-Identifier: Apache-2.0
"""Arguments that are files, fields and settings of the library's text formats."""
from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional, Union

from .model import Spec

Source = Union[str, "os.PathLike[str]", Spec]
Settings = Optional[Mapping[str, object]]


def value_text(value: object) -> str:
    """Returns a value as a setting has it: True is "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(settings: Settings) -> list[str]:
    """Returns {"train.max_steps": 200} as ["train.max_steps=200"]."""
    return [f"{field}={value_text(value)}" for field, value in (settings or {}).items()]


def quoted(text: str) -> str:
    """Returns a string of protobuf's text format."""
    return json.dumps(text, ensure_ascii=False)


@contextlib.contextmanager
def spec_files(sources: Sequence[Source], names: Sequence[Optional[str]]) -> Iterator[list[str]]:
    """Returns the absolute paths of the sources; a Spec is written to a temporary file, whose name is that of the
    model unless the description has one."""
    with tempfile.TemporaryDirectory(prefix="plumb-") as directory:
        paths = []
        for i, (source, name) in enumerate(zip(sources, names)):
            if not isinstance(source, Spec):
                paths.append(os.path.abspath(os.fspath(source)))
                continue
            stem = re.sub(r"[^\w.+-]", "_", name) if name else f"model_{i + 1}" if len(sources) > 1 else "model"
            path = os.path.join(directory, str(i), stem + ".pbtxt")
            os.mkdir(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(source))
            paths.append(path)
        yield paths
