# SPDX-License-Identifier: Apache-2.0
"""Calls of C functions: their errors and results, exceptions of callbacks, and Ctrl-C."""
from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterable
from ctypes import byref, c_char_p, c_int32, c_void_p
from typing import Any, Callable, ClassVar, Optional, TypeVar, Union

from ._library import function
from ._structs import Struct
from .errors import Cancelled, Code, Error, in_python

S = TypeVar("S", bound=Struct)
T = TypeVar("T")
Callbacks = Union[Callable[[T], object], Iterable[Callable[[T], object]]]


class _Thread(threading.local):
    raised: Optional[BaseException] = None  # exception of a callback, until the call around it returns


thread = _Thread()


def call(name: str, *arguments: Any) -> None:
    """Calls a function that can fail. Raises its error, or the exception of a callback."""
    error = c_void_p()
    status = function(name)(*arguments, byref(error))
    if status == 0 and thread.raised is None:
        return
    raised, thread.raised = thread.raised, None
    try:
        raise raised if raised is not None else _error(error)
    finally:
        # The exception's traceback refers to this frame. A variable of the frame that refers to the exception would
        # make a cycle, which keeps all of them, including the handle, alive until the garbage collector runs.
        raised = None
        function("error_free")(error)


def _error(error: c_void_p) -> Error:
    code = Code(function("error_code")(error))
    message = in_python(function("error_message")(error).decode("utf-8", "replace"))
    kind = Cancelled if code == Code.CANCELLED else Error
    file, line, column = c_char_p(), c_int32(), c_int32()
    if function("error_location")(error, byref(file), byref(line), byref(column)):
        return kind(message, code, os.fsdecode(file.value or b""), line.value, column.value)
    return kind(message, code)


def guarded(body: Callable[..., object], *arguments: Any) -> int:
    """Runs the body of a callback. Returns 1 if it returned False or raised an exception, which call() raises again;
    else 0."""
    try:
        return 1 if body(*arguments) is False else 0
    except BaseException as raised:  # also KeyboardInterrupt and SystemExit: nothing may unwind through C
        if thread.raised is None:
            thread.raised = raised
        return 1


def functions_of(callbacks: Callbacks[T]) -> list[Callable[[T], object]]:
    """Returns one or several callbacks as a list. Raises TypeError for anything else."""
    found: list[Callable[[T], object]] = [callbacks] if callable(callbacks) else list(callbacks)
    for function in found:
        if not callable(function):
            raise TypeError(f"callbacks must be functions, not {type(function).__name__}")
    return found


class Interruptible:
    """Handles Ctrl-C during a call that invokes callbacks. Python would raise KeyboardInterrupt at the entry of a
    callback, before any `try` in it, where ctypes loses it. So the signal is only recorded, and the callbacks end the
    call."""
    noted: ClassVar[bool] = False

    def __enter__(self) -> Interruptible:
        self.watches = threading.current_thread() is threading.main_thread()
        self.installed = self.watches and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.installed:
            Interruptible.noted = False
            signal.signal(signal.SIGINT, self._note)
        return self

    @staticmethod
    def _note(_signal: int, _frame: object) -> None:
        Interruptible.noted = True

    def stops(self) -> bool:
        """Returns True if the call is to end."""
        return self.watches and Interruptible.noted

    def __exit__(self, kind: object, raised: Optional[BaseException], traceback: object) -> None:
        stopped = self.stops()
        if self.installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            Interruptible.noted = False
        if stopped and not isinstance(raised, KeyboardInterrupt):
            raise KeyboardInterrupt from None


def rows(name: str, count: int, handle: object, kind: type[S], *arguments: Any) -> list[S]:
    """Returns the elements of a list of `count` structs."""
    found = [kind() for _ in range(count)]
    for i, row in enumerate(found):
        call(name, handle, *arguments, i, byref(row))
    return found


def listed(name: str, handle: object, kind: type[S]) -> list[S]:
    """Returns the elements of a list that a function writes to an array."""
    count = function(name)(handle, None, 0)
    if not count:
        return []
    found = (kind * count)()
    found[0].struct_size = ctypes.sizeof(kind)
    function(name)(handle, found, count)
    return list(found)


def taken(made: c_void_p, size: int = -1) -> bytes:
    """Returns a copy of memory that a call made, and frees it. Without a size it ends with 0."""
    try:
        return ctypes.string_at(made.value or 0, size)
    finally:
        function("free")(made)


def text(name: str, *arguments: Any) -> bytes:
    """Returns the text that a function makes."""
    made = c_void_p()
    call(name, *arguments, byref(made))
    return taken(made)
