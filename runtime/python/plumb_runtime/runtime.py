# SPDX-License-Identifier: Apache-2.0
"""Runtimes: norms, placements and threads."""
from __future__ import annotations

import ctypes
import json
import logging
import os
from ctypes import byref, c_double, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _structs as structs
from ._arguments import c_string, choice, integer
from ._calls import call, guarded, text
from ._handles import Object
from ._library import ABI_VERSION, function

if TYPE_CHECKING:
    from .norms import Norm

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)


def log_function(log: Optional[Callable[[int, str], object]]) -> Any:
    """Returns a callback of the library that passes messages to `log(level, message)`, or to the logger "plumb"."""
    logs = log or logging.getLogger("plumb").log

    def receive(_user: Any, level: int, message: bytes) -> None:
        guarded(lambda: logs(_LEVELS[level], message.decode("utf-8", "replace")) and None)

    return structs.LogFn(receive)


class Runtime(Object):
    """Norms, placements and threads. `threads`: max of a call; 0: OMP_NUM_THREADS, else one for each processor. With
    `environment` False, PLUMB_PLUGIN_PATH, PLUMB_PLACEMENT_PATH and OMP_NUM_THREADS are not read. `gemm`: the GEMM
    engine, as in plumb.h. `plugin_path`, `placement_path`: absolute directories, separated by ":", that are searched
    first. `log(level, message)` receives messages on the calling thread; default: the logger "plumb"."""
    _kind = "runtime"

    def __init__(self, threads: int = 0, *, environment: bool = True, gemm: Optional[str] = None,
                 log: Optional[Callable[[int, str], object]] = None, plugin_path: Optional[str] = None,
                 placement_path: Optional[str] = None) -> None:
        tell = log_function(log)
        options = structs.RuntimeOptions(
            flags=0 if environment else 1, threads=threads, log=ctypes.cast(tell, c_void_p),
            gemm=None if gemm is None else c_string(gemm, "gemm"),
            plugin_path=None if plugin_path is None else c_string(plugin_path, "plugin_path"),
            placement_path=None if placement_path is None else c_string(placement_path, "placement_path"))
        made = c_void_p()
        call("runtime_create", ABI_VERSION, byref(options), byref(made))
        self._take(made, keep=[tell])

    def register_plugin(self, plugin: Union[Norm, int]) -> None:
        """Registers a norm that is written in Python (plumb.norm), or one at an address: a plumb_norm_plugin of
        plumb/norm_plugin.h."""
        if not isinstance(plugin, int):
            from .norms import Norm
            if not isinstance(plugin, Norm):
                raise TypeError(f"plugin must be a plumb.Norm or an address, not {type(plugin).__name__}")
        address = plugin if isinstance(plugin, int) else plugin.address
        with self._use() as handle:
            call("plugin_register", handle, integer(address, "plugin", 0, 2**64 - 1))

    def load_plugin(self, path: Union[str, os.PathLike[str]]) -> None:
        """Registers the norms of a plugin file, whose code runs with all rights of the process."""
        with self._use() as handle:
            call("plugin_load", handle, os.fsencode(path))

    def describe_plugin(self, norm: str) -> dict[str, Any]:
        """Returns a norm's attributes, parameters and traits, as a dict (fields: plugin.schema.json). describe()
        lists norms."""
        with self._use() as handle:
            found: dict[str, Any] = json.loads(text("plugin_describe", handle, c_string(norm, "norm")))
        return found

    @property
    def threads(self) -> int:
        """The max number of threads of a call."""
        return int(function("runtime_threads")(self._live()))

    def gemm(self) -> str:
        """Names the GEMM engines; runtimes with equal strings round equally."""
        with self._use() as handle:
            return text("runtime_gemm", handle).decode()

    def measure_speed(self, what: str) -> float:
        """Measures the peak speed of the machine per second: floating-point operations of matrix products ("gemm f32",
        "gemm bf16"), or bytes read ("read"). Needs up to half a gigabyte, which the runtime keeps."""
        kind, speed = choice(what, "what", ("gemm f32", "gemm bf16", "read")), c_double()
        with self._use() as handle:
            call("runtime_measure_speed", handle, kind, byref(speed))
        return speed.value

    def describe(self) -> dict[str, Any]:
        """Reports the machine, the norms and placements that were found or refused, and problems, as a dict (fields:
        runtime.schema.json)."""
        with self._use() as handle:
            found: dict[str, Any] = json.loads(text("runtime_describe", handle))
        return found
