# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libplumb.so, and declares the functions of plumb.h. A test compares them with the header."""
from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Optional, Union

from . import _structs as structs

_ids = c_void_p  # an address or a ctypes array; both are faster than a typed pointer
_made = POINTER(c_void_p)
# Arguments of functions that can fail, without the last one, the error.
STATUS: dict[str, list[Any]] = {
    "runtime_create": [c_uint32, POINTER(structs.RuntimeOptions), _made],
    "runtime_describe": [c_void_p, _made],
    "runtime_gemm": [c_void_p, _made],
    "runtime_measure_speed": [c_void_p, c_int32, POINTER(c_double)],
    "plugin_register": [c_void_p, c_void_p],
    "plugin_load": [c_void_p, c_char_p],
    "plugin_describe": [c_void_p, c_char_p, _made],
    "model_describe": [c_void_p, _made],
    "model_explain": [c_void_p, POINTER(structs.ExplainOptions), _made],
    "model_work": [c_void_p, c_int32, c_int64, c_int32, c_char_p, POINTER(structs.Work)],
    "model_probe_points": [c_void_p, _made],
    "spec_from_file": [c_char_p, _made],
    "spec_from_text": [c_char_p, c_char_p, _made],
    "spec_set": [c_void_p, c_char_p, c_char_p],
    "spec_text": [c_void_p, _made],
    "model_create": [c_void_p, c_void_p, _made],
    "model_get_info": [c_void_p, POINTER(structs.ModelInfo)],
    "model_init": [c_void_p, c_uint64],
    "model_load": [c_void_p, c_char_p, _made],
    "model_merge": [c_void_p, _made],
    "model_read_tensor": [c_void_p, c_int64, c_int64, c_int64, POINTER(c_float)],
    "model_load_memory": [c_void_p, c_void_p, c_size_t],
    "model_map": [c_void_p, c_char_p],
    "model_save": [c_void_p, c_char_p, c_char_p],
    "model_tensor": [c_void_p, c_int64, POINTER(structs.Tensor)],
    "tokenizer_create": [c_int32, c_char_p, c_size_t, c_int32, _made],
    "tokenizer_from_json": [c_char_p, _made],
    "tokenizer_from_directory": [c_char_p, _made],
    "tokenizer_json": [c_void_p, _made],
    "tokenizer_get_info": [c_void_p, POINTER(structs.TokenizerInfo)],
    "tokenizer_encode": [c_void_p, c_char_p, c_size_t, _made, POINTER(c_int64)],
    "tokenizer_decode": [c_void_p, _ids, c_int64, _made, POINTER(c_size_t)],
    "decoder_create": [c_void_p, _ids, c_int64, _made],
    "decoder_next": [c_void_p, _ids, c_int64, _made, POINTER(c_size_t)],
    "decoder_finish": [c_void_p, _made, POINTER(c_size_t)],
    "decoder_stop_at": [c_void_p, POINTER(c_char_p), c_int64],
    "model_text": [c_void_p, _made],
    "model_norms": [c_void_p, _made],
    "recipe_text": [c_char_p, c_char_p, POINTER(c_char_p), c_int64, _made],
    "trainer_plan": [c_void_p, POINTER(structs.TrainerOptions), POINTER(structs.TrainerMemory)],
    "trainer_get_memory": [c_void_p, POINTER(structs.TrainerMemory)],
    "trainer_create": [c_void_p, POINTER(structs.TrainerOptions), _made],
    "trainer_step_with_callback": [c_void_p, structs.MicroBatchFn, c_void_p, POINTER(structs.StepInfo)],
    "trainer_scale_learning_rate": [c_void_p, c_double],
    "trainer_check": [c_void_p],
    "trainer_state": [c_void_p, c_int32, c_int64, POINTER(structs.Tensor)],
    "trainer_read_state": [c_void_p, c_int32, c_int64, c_int64, c_int64, POINTER(c_float)],
    "trainer_write_state": [c_void_p, c_int32, c_int64, c_int64, c_int64, POINTER(c_float)],
    "trainer_set_steps": [c_void_p, c_int64],
    "trainer_profile": [c_void_p, c_int32],
    "trainer_step": [c_void_p, _ids, _ids, c_int64, POINTER(structs.StepInfo)],
    "trainer_run": [c_void_p, structs.BatchFn, structs.StepFn, c_void_p],
    "trainer_gradient": [c_void_p, c_int64, POINTER(structs.Tensor)],
    "trainer_save": [c_void_p, c_char_p],
    "trainer_load": [c_void_p, c_char_p],
    "trainer_probe": [c_void_p, c_int64, POINTER(c_char_p), c_int64, structs.ProbeFn, c_void_p],
    "session_profile": [c_void_p, c_int32],
    "session_create": [c_void_p, POINTER(structs.SessionOptions), _made],
    "session_feed": [c_void_p, c_int32, _ids, c_int64],
    "session_append": [c_void_p, c_int32, c_int32],
    "session_feed_batch": [c_void_p, _ids, c_int64],
    "session_copy": [c_void_p, c_int32, c_int32],
    "session_truncate": [c_void_p, c_int32, c_int64],
    "session_generate": [c_void_p, c_int32, POINTER(structs.SampleOptions), structs.TokenFn, c_void_p],
    "run_open": [c_void_p, c_char_p, c_uint32, _made, _made, POINTER(c_int64)],
    "run_train": [c_void_p, POINTER(structs.RunTraining)],
    "study_run": [c_char_p, POINTER(structs.StudyOptions)],
    "evaluator_plan": [c_void_p, POINTER(structs.EvaluatorOptions), POINTER(c_int64)],
    "evaluator_create": [c_void_p, POINTER(structs.EvaluatorOptions), _made],
    "evaluator_run": [c_void_p, _ids, _ids, c_int64, POINTER(c_double)],
    "evaluator_gradient": [c_void_p, c_int64, POINTER(structs.Tensor)],
    "evaluator_probe": [c_void_p, POINTER(c_char_p), c_int64, structs.ProbeFn, c_void_p],
}
# Arguments and result of functions that cannot fail.
PLAIN: dict[str, tuple[list[Any], Any]] = {
    "version": ([], c_char_p),
    "error_code": ([c_void_p], c_int32),
    "error_message": ([c_void_p], c_char_p),
    "error_location": ([c_void_p, POINTER(c_char_p), POINTER(c_int32), POINTER(c_int32)], c_int32),
    "runtime_threads": ([c_void_p], c_int32),
    "model_changed": ([c_void_p], None),
    "model_find_tensor": ([c_void_p, c_char_p], c_int64),
    "model_tensor_count": ([c_void_p], c_int64),
    "free": ([c_void_p], None),
    "decoder_stopped": ([c_void_p], c_int32),
    "trainer_state_count": ([c_void_p, c_int32], c_int64),
    "trainer_probes": ([c_void_p, POINTER(structs.Probe), c_int64], c_int64),
    "trainer_profile_rows": ([c_void_p, POINTER(structs.ProfileRow), c_int64], c_int64),
    "session_profile_rows": ([c_void_p, POINTER(structs.ProfileRow), c_int64], c_int64),
    "trainer_step_tokens": ([c_void_p], c_int64),
    "trainer_steps": ([c_void_p], c_int64),
    "trainer_learning_rate": ([c_void_p], c_double),
    "trainer_cancel": ([c_void_p], None),
    "session_logits": ([c_void_p, c_int32], POINTER(c_float)),
    "session_length": ([c_void_p, c_int32], c_int64),
    "session_finish_reason": ([c_void_p], c_int32),
    "session_cancel": ([c_void_p], None),
    "evaluator_logits": ([c_void_p], POINTER(c_float)),
    "evaluator_losses": ([c_void_p], POINTER(c_float)),
    "evaluator_cancel": ([c_void_p], None),
}
FREED = ("error", "runtime", "spec", "model", "tokenizer", "decoder", "trainer", "session", "evaluator")

ABI_VERSION = 3
_NAME = f"libplumb.so.0.{ABI_VERSION}"
_HERE = os.path.dirname(os.path.realpath(__file__))
_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None
_functions: dict[str, Any] = {}


def load(path: Union[str, "os.PathLike[str]", None] = None) -> ctypes.CDLL:
    """Loads the library, from `path` if given. Otherwise the first use loads it, from the environment variable
    PLUMB_LIBRARY, the package (a wheel), the prefix that the package is installed in, or the system's library path.
    Does nothing if it is loaded. Raises ImportError if there is none, or one of another version than this package."""
    global _library
    with _lock:
        if _library is None:
            _library = _open(os.fspath(path) if path is not None else os.environ.get("PLUMB_LIBRARY") or _find())
        return _library


def function(name: str) -> Any:
    """Returns the C function plumb_`name`."""
    try:
        return _functions[name]
    except KeyError:
        load()
        return _functions[name]


def version() -> str:
    """Returns the version of the library: "0.3.0"."""
    return str(function("version")().decode())


def prefix() -> str:
    """Returns the directory that contains bin, lib and share of the installation that the package belongs to, or "" if
    it belongs to none."""
    for up in (".", "../../../.."):  # a wheel; PREFIX/share/plumb/python/plumb_runtime
        directory = os.path.normpath(os.path.join(_HERE, up))
        if os.path.isdir(os.path.join(directory, "share", "plumb", "placements")):
            return directory
    return ""


def _find() -> str:
    import glob
    if prefix():
        for pattern in ("lib", "lib64", "lib/*-linux-gnu*"):
            found = glob.glob(os.path.join(prefix(), pattern, _NAME))
            if found:
                return found[0]
    return _NAME


def _open(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}: install libplumb, or set the path of {_NAME} in PLUMB_LIBRARY") from None
    for name, arguments in STATUS.items():
        _declare(library, name, [*arguments, _made], c_int32)
    for name, (arguments, returned) in PLAIN.items():
        _declare(library, name, arguments, returned)
    for kind in FREED:
        _declare(library, kind + "_free", [c_void_p], None)
    return library


def _declare(library: ctypes.CDLL, name: str, arguments: Sequence[Any], returned: Any) -> None:
    try:
        found = getattr(library, "plumb_" + name)
    except AttributeError:
        raise ImportError(f"{library._name} has no plumb_{name}: it is of another version than this package") from None
    found.argtypes, found.restype = arguments, returned
    _functions[name] = found
