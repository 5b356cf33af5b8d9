# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the library."""
from __future__ import annotations

import enum
import re
from typing import Optional


class Code(enum.IntEnum):
    """Status code of an Error."""
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15


class Error(Exception):
    """An error of the library. str() is its message; `file`, `line` and `column` (from 1) are the location with which
    the message begins, or None."""

    def __init__(self, message: str, code: Code, file: Optional[str] = None, line: Optional[int] = None,
                 column: Optional[int] = None) -> None:
        super().__init__(message)
        self.code, self.file, self.line, self.column = code, file, line, column

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (str(self), self.code, self.file, self.line, self.column)


class Cancelled(Error):
    """Raised if a callback returned False, or cancel() was called."""


def in_python(message: str) -> str:
    """Replaces what a message recommends, a C function or an option of the command line, with its name in this
    package."""
    message = message.replace("plumb_model_init or plumb_model_load first",
                              "give Model a seed= or weights=, or call its init(), load() or map() first")
    message = re.sub(r"(vocab_size is missing)[;,].*",
                     r'\1; give set={"model.vocab_size": 27}, or set it in a Spec: spec["vocab_size"] = 27', message)
    message = re.sub(r"--(resume|overwrite)\b", r"\1=True", message.replace("another --out", "another out"))
    return re.sub(r"\bplumb_(model|tokenizer|decoder|trainer|session|evaluator)_(\w+)",
                  lambda name: f"{name[1].capitalize()}.{name[2]}", message)
