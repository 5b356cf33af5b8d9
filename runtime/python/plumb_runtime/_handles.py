# SPDX-License-Identifier: Apache-2.0
"""Ownership of the library's objects: handles, the base class of everything that has one, and leases of memory."""
from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Optional, TypeVar

from ._library import function

O = TypeVar("O", bound="Object")


class Handle:
    """A pointer of the library, freed with the last reference to this object. `keep` lives as long."""

    def __init__(self, kind: str, pointer: Any, keep: object = None) -> None:
        self._free = function(kind + "_free")
        self._as_parameter_, self.keep = pointer, keep  # an argument lives as long as the call

    def __del__(self) -> None:
        self._free(self._as_parameter_)


class Lease:
    """Reference of a view of memory to the handle that owns the memory."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle


class Use:
    """A call on a handle, for `with`. With a lock it excludes other calls."""
    __slots__ = ("_handle", "_lock", "_name")

    def __init__(self, handle: Handle, lock: Optional[threading.Lock], name: str) -> None:
        self._handle, self._lock, self._name = handle, lock, name

    def __enter__(self) -> Handle:
        if self._lock is not None and not self._lock.acquire(False):
            raise RuntimeError(f"this {self._name} is in a call already, of another thread or of this one")
        return self._handle

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()


class NotPickled:
    """Base of classes that refuse to be copied and pickled."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a plumb.{type(self).__name__} cannot be copied or pickled, because it is memory of this "
                        "process: save() weights to a file, and create it again from texts and files")


class Object(NotPickled):
    """Base of objects with a handle: refuses use after close() and by two calls at once."""
    _kind: ClassVar[str]
    _handle: Optional[Handle] = None

    def _take(self, pointer: Any, keep: object = None) -> None:
        self._handle = Handle(self._kind, pointer, keep)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Frees the object as soon as no call and no view uses it. Closing it twice does nothing."""
        self._handle = None

    def __enter__(self: O) -> O:
        self._live()
        return self

    def __exit__(self, kind: Optional[type[BaseException]], raised: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return f"<plumb.{type(self).__name__}, closed>"
        return f"<plumb.{type(self).__name__}{self._figures()}>"

    def _figures(self) -> str:
        return ""

    def _live(self) -> Handle:
        if self._handle is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._handle

    def _use(self) -> Use:
        """Returns the handle, for a call that excludes others."""
        return Use(self._live(), self._lock, type(self).__name__)
