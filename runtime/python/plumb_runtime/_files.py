# SPDX-License-Identifier: Apache-2.0
"""Arguments that are files, fields and settings of the library's text formats."""
from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
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
def spec_file(source: Source) -> Iterator[str]:
    """Returns the path of a model's file; a Spec is written to a temporary one."""
    with tempfile.TemporaryDirectory(prefix="plumb-") as directory:
        yield model_path(source, directory, "model")


def model_path(source: Source, directory: str, name: str) -> str:
    """Returns the absolute path of a model's file; a Spec is written to `directory`, as NAME.pbtxt. Raises
    FileExistsError if another model has that file."""
    if not isinstance(source, Spec):
        return os.path.abspath(os.fspath(source))
    path = os.path.join(os.path.abspath(directory), re.sub(r"[^\w.+-]", "_", name) + ".pbtxt")
    text = str(source)
    os.makedirs(directory, exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                raise FileExistsError(f"{path}: is of another model; choose another name or another out") from None
    return path
