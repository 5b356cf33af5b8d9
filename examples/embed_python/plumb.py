# SPDX-License-Identifier: Apache-2.0
"""plumb: describe, train and sample transformers with libplumb.so, through ctypes.

One file that needs only the standard library; copy it. Only Tensor.numpy and Probe.numpy use numpy.

    import plumb

    runtime = plumb.Runtime()
    tokenizer = plumb.Tokenizer.characters(text)
    spec = plumb.Spec(description)
    spec["vocab_size"] = tokenizer.vocab_size
    model = plumb.Model(runtime, spec, seed=1)
    plumb.Trainer(model, "max_steps: 100").run(batches)
    session, prompt = plumb.Session(model), tokenizer.prefix + tokenizer.encode("once")
    session.feed(prompt)
    decoder = tokenizer.decoder(prompt)
    for token in session.stream(temperature=0.8, seed=1):
        print(decoder.next(token), end="")
    print(decoder.finish(), session.finish_reason)

Errors are plumb.Error, with the location in a text: file, line, column. Messages go to the logger "plumb".
Objects close with `with`, close() or the last reference, in any order; a view of a tensor keeps its memory
alive. A Trainer and a Session are for one thread at a time. While a trainer steps, no session of its model may
run on another thread (in on_step it may).

libplumb.so.1 is searched at load(path), in the environment variable PLUMB_LIBRARY, next to this file
(., lib, ../lib, ../../lib, ../../../lib), and in the system's library path.
"""
import array
import collections.abc
import contextlib
import ctypes
import ctypes.util
import enum
import glob
import json
import logging
import math
import numbers
import operator
import os
import re
import signal
import threading
import weakref
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import NamedTuple, Tuple

__all__ = ["Code", "Error", "Cancelled", "Runtime", "Spec", "Model", "ModelInfo", "Tensor", "Tokenizer", "Trainer",
           "Decoder", "StepInfo", "Probe", "Session", "Evaluator", "load", "version"]


# --- The library --------------------------------------------------------------------------------------

class _Struct(ctypes.Structure):
    def __init__(self, **fields):
        kinds = dict(self._fields_)
        for name, value in fields.items():
            if kinds[name] in (c_int32, c_int64, c_uint32, c_uint64, c_size_t):
                bits, signed = 8 * ctypes.sizeof(kinds[name]), kinds[name](-1).value < 0
                least = -2**(bits - 1) if signed else 0
                fields[name] = _integer(value, name, least, least + 2**bits - 1)
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class _RuntimeOptions(_Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("threads", c_int32), ("log", c_void_p),
                ("log_user", c_void_p), ("gemm", c_char_p), ("allocator", c_void_p), ("executor", c_void_p),
                ("plugin_path", c_char_p), ("placement_path", c_char_p), ("install_prefix", c_char_p)]


class _ModelInfo(_Struct):
    _fields_ = [("struct_size", c_uint32), ("n_layer", c_int64), ("d_model", c_int64), ("n_head", c_int64),
                ("vocab_size", c_int64), ("context_length", c_int64), ("parameters", c_int64), ("weight_bytes", c_int64),
                ("cache_bytes", c_int64), ("bidirectional", c_int32), ("token_types", c_int32)]


class _Tensor(_Struct):
    _fields_ = [("struct_size", c_uint32), ("name", c_char_p), ("dtype", c_int32), ("rank", c_int32),
                ("shape", c_int64 * 4), ("data", c_void_p)]


class _TrainerOptions(_Struct):
    _fields_ = [("struct_size", c_uint32), ("draw_weights", c_int32), ("ranks", c_int32), ("recipe", c_char_p),
                ("recipe_size", c_size_t), ("seq", c_int64), ("reserve", c_int64), ("communicator", c_void_p)]


class _TrainerMemory(_Struct):
    _fields_ = [("struct_size", c_uint32), ("weights", c_int64), ("gradients", c_int64), ("moments", c_int64),
                ("norm_states", c_int64), ("inputs", c_int64), ("workspace", c_int64), ("total", c_int64),
                ("exchange", c_int64)]


class _ProfileRow(_Struct):
    _fields_ = [("struct_size", c_uint32), ("in_graph", c_int32), ("name", c_char_p), ("runs", c_int64),
                ("seconds", c_double), ("flops", c_double), ("bytes", c_double)]


class _StepInfo(_Struct):
    _fields_ = [("struct_size", c_uint32), ("step", c_int64), ("tokens", c_int64), ("loss", c_double),
                ("gradient_norm", c_double), ("learning_rate", c_double), ("seconds", c_double)]


class _SessionOptions(_Struct):
    _fields_ = [("struct_size", c_uint32), ("sequences", c_int32), ("weights", c_int32)]


class _SampleOptions(_Struct):
    _fields_ = [("struct_size", c_uint32), ("greedy", c_int32), ("max_tokens", c_int64), ("top_k", c_int32),
                ("vocabulary", c_int32), ("temperature", c_double), ("top_p", c_double), ("seed", c_uint64),
                ("index", c_uint64), ("drawn", c_int64), ("end_tokens", POINTER(c_int32)), ("end_token_count", c_size_t)]


class _EvaluatorOptions(_Struct):
    _fields_ = [("struct_size", c_uint32), ("weights", c_int32), ("rows", c_int64), ("seq", c_int64), ("logits", c_int32),
                ("gradients", c_int32)]


class _ExplainOptions(_Struct):
    _fields_ = [("struct_size", c_uint32), ("stage", c_int32), ("layer", c_int64), ("batch", c_int64),
                ("seq", c_int64), ("recipe", c_char_p), ("recipe_size", c_size_t)]


class _Work(_Struct):
    _fields_ = [("struct_size", c_uint32), ("flops", c_double), ("weight_bytes", c_int64)]


class _Probe(_Struct):
    _fields_ = [("struct_size", c_uint32), ("kind", c_int32), ("step", c_int64), ("name", c_char_p), ("rms", c_double),
                ("max", c_double), ("mean", c_double), ("nonfinite", c_int64), ("elements", c_int64), ("dtype", c_int32),
                ("rank", c_int32), ("shape", c_int64 * 4), ("data", c_void_p), ("norm", c_double)]


_LogFn = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
_BatchFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int64, POINTER(c_int32), POINTER(c_int32), c_size_t)
_MicroBatchFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int64, POINTER(c_int32), POINTER(c_int32), POINTER(c_int64))
_StepFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(_StepInfo))
_TokenFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32)
_ProbeFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(_Probe))

_ids = POINTER(c_int32)
_made = POINTER(c_void_p)
_size = POINTER(c_size_t)
# Arguments of functions that can fail, without the last one, the error.
_STATUS = {
    "runtime_create": [POINTER(_RuntimeOptions), _made],
    "runtime_describe": [c_void_p, c_void_p, c_size_t, _size],
    "runtime_gemm": [c_void_p, c_void_p, c_size_t, _size],
    "runtime_measure_speed": [c_void_p, c_int32, POINTER(c_double)],
    "plugin_register": [c_void_p, c_void_p],
    "plugin_load": [c_void_p, c_char_p],
    "plugin_describe": [c_void_p, c_char_p, c_void_p, c_size_t, _size],
    "model_describe": [c_void_p, c_void_p, c_size_t, _size],
    "model_explain": [c_void_p, POINTER(_ExplainOptions), c_void_p, c_size_t, _size],
    "model_work": [c_void_p, c_int32, c_int64, c_int32, POINTER(_Work)],
    "model_probe_points": [c_void_p, c_void_p, c_size_t, _size],
    "spec_from_file": [c_char_p, _made],
    "spec_from_text": [c_char_p, c_size_t, c_char_p, _made],
    "spec_set": [c_void_p, c_char_p, c_char_p],
    "spec_text": [c_void_p, c_void_p, c_size_t, _size],
    "model_create": [c_void_p, c_void_p, _made],
    "model_init": [c_void_p, c_uint64],
    "model_load": [c_void_p, c_char_p],
    "model_load_memory": [c_void_p, c_void_p, c_size_t],
    "model_map": [c_void_p, c_char_p],
    "model_save": [c_void_p, c_char_p],
    "model_tensor": [c_void_p, c_size_t, POINTER(_Tensor)],
    "tokenizer_create": [c_int32, c_char_p, c_size_t, c_int32, _made],
    "tokenizer_from_json": [c_char_p, c_size_t, _made],
    "tokenizer_from_directory": [c_char_p, _made],
    "tokenizer_json": [c_void_p, c_void_p, c_size_t, _size],
    "tokenizer_end_tokens": [c_void_p, _ids, c_size_t, _size],
    "tokenizer_prefix": [c_void_p, _ids, c_size_t, _size],
    "tokenizer_encode": [c_void_p, c_char_p, c_size_t, _ids, c_size_t, _size],
    "tokenizer_decode": [c_void_p, _ids, c_size_t, c_void_p, c_size_t, _size],
    "decoder_create": [c_void_p, _ids, c_size_t, _made],
    "decoder_next": [c_void_p, _ids, c_size_t, _made, _size],
    "decoder_finish": [c_void_p, _made, _size],
    "decoder_stop_at": [c_void_p, POINTER(c_char_p), c_size_t],
    "model_text": [c_void_p, c_void_p, c_size_t, _size],
    "model_norms": [c_void_p, c_void_p, c_size_t, _size],
    "recipe_text": [c_char_p, c_size_t, c_char_p, POINTER(c_char_p), c_size_t, c_void_p, c_size_t, _size],
    "trainer_plan": [c_void_p, POINTER(_TrainerOptions), POINTER(_TrainerMemory)],
    "trainer_create": [c_void_p, POINTER(_TrainerOptions), _made],
    "trainer_step_with_callback": [c_void_p, _MicroBatchFn, c_void_p, POINTER(_StepInfo)],
    "trainer_scale_learning_rate": [c_void_p, c_double],
    "trainer_check": [c_void_p],
    "trainer_state": [c_void_p, c_int32, c_size_t, POINTER(_Tensor)],
    "trainer_read_state": [c_void_p, c_int32, c_size_t, c_int64, c_int64, POINTER(c_float)],
    "trainer_write_state": [c_void_p, c_int32, c_size_t, c_int64, c_int64, POINTER(c_float)],
    "trainer_set_steps": [c_void_p, c_int64],
    "trainer_get_probe": [c_void_p, c_size_t, POINTER(_Probe)],
    "trainer_profile": [c_void_p, c_int32],
    "trainer_profile_row": [c_void_p, c_size_t, POINTER(_ProfileRow)],
    "trainer_step": [c_void_p, _ids, _ids, c_size_t, POINTER(_StepInfo)],
    "trainer_run": [c_void_p, _BatchFn, _StepFn, c_void_p],
    "trainer_gradient": [c_void_p, c_size_t, POINTER(_Tensor)],
    "trainer_save": [c_void_p, c_char_p],
    "trainer_load": [c_void_p, c_char_p],
    "trainer_probe": [c_void_p, c_int64, POINTER(c_char_p), c_size_t, _ProbeFn, c_void_p],
    "session_profile": [c_void_p, c_int32],
    "session_profile_row": [c_void_p, c_size_t, POINTER(_ProfileRow)],
    "session_create": [c_void_p, POINTER(_SessionOptions), _made],
    "session_feed": [c_void_p, c_int32, _ids, c_size_t],
    "session_append": [c_void_p, c_int32, c_int32],
    "session_feed_batch": [c_void_p, _ids, c_size_t],
    "session_truncate": [c_void_p, c_int32, c_int64],
    "session_generate": [c_void_p, c_int32, POINTER(_SampleOptions), _TokenFn, c_void_p],
    "evaluator_plan": [c_void_p, POINTER(_EvaluatorOptions), POINTER(c_int64)],
    "evaluator_create": [c_void_p, POINTER(_EvaluatorOptions), _made],
    "evaluator_run": [c_void_p, _ids, _ids, c_size_t, POINTER(c_double)],
    "evaluator_gradient": [c_void_p, c_size_t, POINTER(_Tensor)],
    "evaluator_probe": [c_void_p, POINTER(c_char_p), c_size_t, _ProbeFn, c_void_p],
}
# Arguments and result of functions that cannot fail.
_PLAIN = {
    "abi_version": ([], c_uint32),
    "version": ([], c_char_p),
    "error_code": ([c_void_p], c_int32),
    "error_message": ([c_void_p], c_char_p),
    "error_location": ([c_void_p, POINTER(c_char_p), _ids, _ids], ctypes.c_int),
    "runtime_threads": ([c_void_p], c_int32),
    "model_get_info": ([c_void_p, POINTER(_ModelInfo)], None),
    "model_changed": ([c_void_p], None),
    "model_tensor_count": ([c_void_p], c_size_t),
    "tokenizer_vocab_size": ([c_void_p], c_int32),
    "tokenizer_begin_end": ([c_void_p], c_int32),
    "tokenizer_begin": ([c_void_p], c_int32),
    "decoder_stopped": ([c_void_p], c_int32),
    "trainer_step_tokens": ([c_void_p], c_size_t),
    "trainer_steps": ([c_void_p], c_int64),
    "trainer_get_memory": ([c_void_p, POINTER(_TrainerMemory)], None),
    "trainer_learning_rate": ([c_void_p], c_double),
    "trainer_cancel": ([c_void_p], None),
    "session_logits": ([c_void_p, c_int32], POINTER(c_float)),
    "session_length": ([c_void_p, c_int32], c_int64),
    "session_finish_reason": ([c_void_p], c_int32),
    "session_cancel": ([c_void_p], None),
    "evaluator_logits": ([c_void_p], POINTER(c_float)),
}
_FREED = ("error", "runtime", "spec", "model", "tokenizer", "decoder", "trainer", "session", "evaluator")

_library = None
_library_lock = threading.Lock()


def load(path=None):
    """Loads the library, from `path` if given. Otherwise the first use loads it. Does nothing if it is loaded."""
    global _library
    with _library_lock:
        if _library is None:
            _library = _open(path)
        return _library


def _open(path):
    name = "libplumb.so.1"
    path = path or os.environ.get("PLUMB_LIBRARY")
    if path is None:
        here = os.path.dirname(os.path.realpath(__file__))
        beside = [pattern for up in ("", "lib", "../lib", "../../lib", "../../../lib")
                  for pattern in (os.path.join(here, up, name), os.path.join(here, up, "*-linux-gnu*", name))]
        found = [file for pattern in beside for file in sorted(glob.glob(pattern))]
        path = found[0] if found else ctypes.util.find_library("plumb") or name
    try:
        library = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise ImportError(f"{error}: install libplumb, or set the path of {name} in PLUMB_LIBRARY") from None
    for function, arguments in _STATUS.items():
        _declare(library, function, arguments + [_made], c_int32)
    for function, (arguments, returned) in _PLAIN.items():
        _declare(library, function, arguments, returned)
    for kind in _FREED:
        _declare(library, kind + "_free", [c_void_p], None)
    return library


def _declare(library, name, arguments, returned):
    try:
        function = getattr(library, "plumb_" + name)
    except AttributeError:
        raise ImportError(f"{library._name} has no plumb_{name}: it is older than this plumb.py") from None
    function.argtypes, function.restype = arguments, returned


def version():
    """Returns the version of the library: "0.2.0"."""
    return load().plumb_version().decode()


# --- Errors -------------------------------------------------------------------------------------------

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
    """An error of the library. str() is its message; `file`, `line` and `column` are the location with which the
    message begins, or None."""

    def __init__(self, message, code, file=None, line=None, column=None):
        super().__init__(message)
        self.code, self.file, self.line, self.column = code, file, line, column


class Cancelled(Error):
    """Raised if a callback returned False, or cancel() was called."""


_thread = threading.local()  # .raised: exception of a callback, until the call around it returns


def _call(name, *arguments):
    """Calls a function that can fail. Raises its error, or the exception of a callback."""
    library = load()
    error = c_void_p()
    status = getattr(library, "plumb_" + name)(*arguments, byref(error))
    raised, _thread.raised = getattr(_thread, "raised", None), None
    try:
        if raised is not None:
            raise raised
        if status != 0:
            raise _error(library, error)
    finally:
        # The exception's traceback refers to this frame. A variable of the frame that refers to the exception would
        # make a cycle, which keeps all of them, including the handle, alive until the garbage collector runs.
        raised = None
        library.plumb_error_free(error)


def _error(library, error):
    code = Code(library.plumb_error_code(error))
    message = _in_python(library.plumb_error_message(error).decode("utf-8", "replace"))
    kind = Cancelled if code == Code.CANCELLED else Error
    file, line, column = c_char_p(), c_int32(), c_int32()
    if library.plumb_error_location(error, byref(file), byref(line), byref(column)):
        return kind(message, code, os.fsdecode(file.value), line.value, column.value)
    return kind(message, code)


def _in_python(message):
    """Replaces the name of a C function that a message recommends with its name in this module."""
    message = message.replace("plumb_model_init or plumb_model_load first",
                              "give Model a seed= or weights=, or call its init(), load() or map() first")
    return re.sub(r"\bplumb_(model|tokenizer|decoder|trainer|session|evaluator)_(\w+)",
                  lambda name: f"{name[1].capitalize()}.{name[2]}", message)


def _guarded(function, *arguments):
    """Runs the body of a callback. Returns 1 if it returned False or raised an exception, which _call raises again;
    else 0."""
    try:
        return 1 if function(*arguments) is False else 0
    except BaseException as raised:  # also KeyboardInterrupt and SystemExit: nothing may unwind through C
        if getattr(_thread, "raised", None) is None:
            _thread.raised = raised
        return 1


class _Interruptible:
    """Handles Ctrl-C during a call that invokes callbacks. Python would raise KeyboardInterrupt at the entry of a
    callback, before any `try` in it, where ctypes loses it. So the signal is only recorded, and the callbacks end the
    call."""
    noted = False

    def __enter__(self):
        self.watches = threading.current_thread() is threading.main_thread()
        self.installed = self.watches and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.installed:
            _Interruptible.noted = False
            signal.signal(signal.SIGINT, self._note)
        return self

    @staticmethod
    def _note(_signal, _frame):
        _Interruptible.noted = True

    def stops(self):
        return self.watches and _Interruptible.noted

    def __exit__(self, kind, raised, traceback):
        stopped = self.stops()
        if self.installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _Interruptible.noted = False
        if stopped and not isinstance(raised, KeyboardInterrupt):
            raise KeyboardInterrupt from None


# --- Handles and arguments ----------------------------------------------------------------------------

class _Handle:
    """A pointer of the library, freed with the last reference to this object. `keep` lives as long."""

    def __init__(self, kind, pointer, keep=None):
        self._free = getattr(load(), f"plumb_{kind}_free")
        self._as_parameter_, self.keep = pointer, keep  # an argument lives as long as the call

    def __del__(self):
        self._free(self._as_parameter_)


class _Object:
    """Base of objects with a handle: refuses use after close(), and by two calls at once."""
    _kind = None

    def _take(self, pointer, keep=None):
        self._handle = _Handle(self._kind, pointer, keep)
        self._lock = threading.Lock()

    def close(self):
        """Frees the object as soon as no call and no view uses it. Closing it twice does nothing."""
        self._handle = None

    def __enter__(self):
        self._live()
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        if getattr(self, "_handle", None) is None:
            return f"<plumb.{type(self).__name__}, closed>"
        return f"<plumb.{type(self).__name__}{self._figures()}>"

    def _figures(self):
        return ""

    def _live(self):
        handle = getattr(self, "_handle", None)
        if handle is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return handle

    @contextlib.contextmanager
    def _use(self):
        """Yields the handle, for a call that excludes others."""
        handle = self._live()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(f"this {type(self).__name__} is in a call already, of another thread or of this one")
        try:
            yield handle
        finally:
            self._lock.release()


def _is(value, kind, name):
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def _integer(value, name, least=-2**63, most=2**63 - 1):
    """Checks an integer argument for C, which ctypes would silently truncate."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not least <= value <= most:
        raise OverflowError(f"{name}: {value} is not in {least} .. {most}")
    return value


def _sequence(value):
    return _integer(value, "sequence", -2**31, 2**31 - 1)


def _utf8(text, name="text"):
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, (bytes, bytearray)):
        return bytes(text)
    raise TypeError(f"{name} must be str or bytes, not {type(text).__name__}")


def _word(text, name):
    """Returns a string that ends with 0 in C, without other zeros."""
    encoded = _utf8(text, name)
    if b"\0" in encoded:
        raise ValueError(f"{name} holds a null character")
    return encoded


_INTEGERS = {1: "bB", 2: "hH", 4: "iI", 8: "qQ"}  # signed and unsigned, by size


def _tokens(ids, name="ids"):
    """Returns token ids as (pointer, count, buffer to keep alive), in row-major order. A writable buffer of int32 is
    not copied."""
    kept, _shape = _row_major((ids,) if isinstance(ids, numbers.Integral) else ids, name)
    count = len(kept)
    return (c_int32 * count).from_buffer(kept), count, kept


def _row_major(ids, name):
    """Returns token ids as (a writable buffer of int32, their shape)."""
    if isinstance(ids, str):
        raise TypeError(f"{name} must be token ids, not str: Tokenizer.encode gives them")
    try:
        view = memoryview(ids)
    except TypeError:
        if not isinstance(ids, collections.abc.Iterable):
            raise TypeError(f"{name} must be token ids, not {type(ids).__name__}") from None
        return _of_rows(list(ids), name)
    kind = view.format.lstrip("@=<>!")
    if kind not in tuple("bBhHiIlLqQnN"):
        raise TypeError(f"{name} must be integers, not of format {view.format!r}")
    if view.format in ("i", "<i") and not view.readonly and view.c_contiguous:
        return view.cast("B").cast("i"), view.shape
    found = array.array(_INTEGERS[view.itemsize][kind.isupper()], view.tobytes())  # in C order
    if view.format[0] in ">!":
        found.byteswap()
    return _int32(found.tolist(), name), view.shape


def _of_rows(rows, name):
    """Does the same as _row_major, for a list of integers or of such lists."""
    try:
        return _int32(rows, name), (len(rows),)
    except TypeError:
        pass
    nested = [isinstance(row, collections.abc.Iterable) for row in rows]
    if not any(nested):
        wrong = next(i for i, row in enumerate(rows) if not hasattr(row, "__index__"))
        raise TypeError(f"{name}[{wrong}] must be a token id, an integer, not {type(rows[wrong]).__name__}")
    kept, first = array.array("i"), None
    for i, row in enumerate(rows):
        found, shape = _row_major(row, f"{name}[{i}]") if nested[i] else ((), ())
        first = shape if i == 0 else first
        if shape != first:
            raise ValueError(f"{name} is ragged: {name}[0] has the shape {first}, {name}[{i}] {shape}")
        kept.extend(found)
    return kept, (len(rows), *first)


def _int32(ids, name):
    try:
        return array.array("i", ids)
    except OverflowError:
        wrong = next(i for i in ids if not -2**31 <= i < 2**31)
        raise OverflowError(f"{name}: {wrong} is no token id, it does not fit 32 bits") from None


def _rows(name, handle, kind, *arguments):
    """Returns the results of a function for i = 0, 1, ... until there are no more."""
    rows = []
    while True:
        row = kind()
        try:
            _call(name, handle, *arguments, len(rows), byref(row))
        except Error as error:
            if error.code != Code.OUT_OF_RANGE:
                raise
            return rows
        rows.append(row)


def _text(name, *arguments):
    """Returns the string that a function writes to a buffer."""
    needed = c_size_t()
    capacity = 256
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        _call(name, *arguments, buffer, capacity, byref(needed))
        if needed.value < capacity:
            return buffer.raw[:needed.value]
        capacity = needed.value + 1


def _ids_of(name, expected, *arguments):
    """Returns the ids that a function writes to a buffer, and calls it again if there are more than `expected`."""
    needed = c_size_t(expected)
    while True:
        ids = array.array("i", bytes(4 * needed.value))
        pointer, count, _ = _tokens(ids)
        _call(name, *arguments, pointer, count, byref(needed))
        if needed.value <= count:
            return ids[:needed.value]


# --- Describing ---------------------------------------------------------------------------------------

class Runtime(_Object):
    """Plugins, placements and threads. `threads`: max of a call; 0: OMP_NUM_THREADS, else one for each processor. With
    `environment` False, PLUMB_PLUGIN_PATH, PLUMB_PLACEMENT_PATH and OMP_NUM_THREADS are not read. `gemm`: the GEMM
    engine, as in plumb.h. `plugin_path`, `placement_path`: absolute directories, separated by ":", that are searched
    first. `log(level, message)` receives messages on the calling thread; default: the logger "plumb". `guard_plugins`:
    a norm that writes outside of its operands is an error; slow."""
    _kind = "runtime"

    def __init__(self, threads=0, *, environment=True, gemm=None, log=None, plugin_path=None, placement_path=None,
                 guard_plugins=False):
        log = log or logging.getLogger("plumb").log
        levels = (logging.INFO, logging.WARNING, logging.ERROR)
        tell = _LogFn(lambda _user, level, message: _guarded_log(log, levels[level], message.decode("utf-8", "replace")))
        flags = (0 if environment else 1) | (2 if guard_plugins else 0)
        options = _RuntimeOptions(flags=flags, threads=threads, log=ctypes.cast(tell, c_void_p),
                                  gemm=None if gemm is None else _word(gemm, "gemm"),
                                  plugin_path=None if plugin_path is None else _word(plugin_path, "plugin_path"),
                                  placement_path=None if placement_path is None else _word(placement_path, "placement_path"))
        made = c_void_p()
        _call("runtime_create", byref(options), byref(made))
        self._take(made, keep=tell)

    def register_plugin(self, plugin):
        """Registers the norm at an address (an int): a plumb_norm_plugin of plumb/norm_plugin.h."""
        with self._use() as handle:
            _call("plugin_register", handle, _integer(plugin, "plugin", 0, 2**64 - 1))

    def load_plugin(self, path):
        """Registers the norms of a plugin file, whose code runs with all rights of the process."""
        with self._use() as handle:
            _call("plugin_load", handle, os.fsencode(path))

    def describe_plugin(self, norm):
        """Returns a norm's attributes, parameters and traits, as a dict (fields: plugin.schema.json). describe()
        lists norms."""
        with self._use() as handle:
            return json.loads(_text("plugin_describe", handle, _word(norm, "norm")))

    @property
    def threads(self):
        return load().plumb_runtime_threads(self._live())

    def gemm(self):
        """Names the GEMM engines; runtimes with equal strings round equally."""
        with self._use() as handle:
            return _text("runtime_gemm", handle).decode()

    def measure_speed(self, what):
        """Measures the peak speed of the machine per second: floating-point operations of matrix products ("gemm f32",
        "gemm bf16"), or bytes read ("read"). Needs up to half a gigabyte, which the runtime keeps."""
        kinds, speed = ("gemm f32", "gemm bf16", "read"), c_double()
        if what not in kinds:
            raise ValueError(f"what must be one of {', '.join(kinds)}, not {what!r}")
        with self._use() as handle:
            _call("runtime_measure_speed", handle, kinds.index(what), byref(speed))
        return speed.value

    def describe(self):
        """Reports the machine, the norms and placements that were found or refused, and problems, as a dict (fields:
        runtime.schema.json)."""
        with self._use() as handle:
            return json.loads(_text("runtime_describe", handle))


def _guarded_log(log, level, message):
    _guarded(lambda: log(level, message) and None)


class Spec(_Object):
    """A model's description. `name` stands for the file in messages. str() returns its text."""
    _kind = "spec"

    def __init__(self, text, name="model"):
        text, made = _utf8(text), c_void_p()
        _call("spec_from_text", text, len(text), _word(name, "name"), byref(made))
        self._take(made)

    @classmethod
    def from_file(cls, path):
        """Reads a description from a file."""
        spec, made = cls.__new__(cls), c_void_p()
        _call("spec_from_file", os.fsencode(path), byref(made))
        spec._take(made)
        return spec

    def __setitem__(self, field, value):
        """Sets a field: spec["n_layer"] = 8; spec["norm[0].attr[0].number"] = 1e-6."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        with self._use() as handle:
            _call("spec_set", handle, _word(field, "field"), _word(text, "value"))

    def __str__(self):
        with self._use() as handle:
            return _text("spec_text", handle).decode()


class ModelInfo(NamedTuple):
    """Dimensions and sizes; None if the library is older than this file and lacks the field.
    `bidirectional`: each token sees those after it. `token_types`: number of token types, 0 for none."""
    n_layer: int
    d_model: int
    n_head: int
    vocab_size: int
    context_length: int
    parameters: int
    weight_bytes: int
    cache_bytes: int
    bidirectional: bool
    token_types: int

    @classmethod
    def _of(cls, fill):
        told = _ModelInfo(**dict.fromkeys(cls._fields, -1))  # no size is -1
        fill(byref(told))
        values = [None if getattr(told, field) == -1 else getattr(told, field) for field in cls._fields]
        kind = cls._fields.index("bidirectional")
        values[kind] = None if values[kind] is None else values[kind] == 1
        return cls(*values)


_DTYPES = {1: "f32", 2: "bf16", 4: "f64"}


class Tensor:
    """A tensor of floats in the library's memory. `view` is a writable memoryview with its shape, which keeps the
    memory alive."""

    def __init__(self, tensor, handle, leases):
        self.name, self.dtype = tensor.name.decode(), _DTYPES[tensor.dtype]
        self.shape = tuple(tensor.shape[:tensor.rank])
        memory = (c_float * math.prod(self.shape)).from_address(tensor.data)
        memory.lease = _Lease(handle)
        leases.add(memory.lease)
        self.view = memoryview(memory).cast("B").cast("f", self.shape)

    def __repr__(self):
        return f"<plumb.Tensor {self.name} {list(self.shape)} {self.dtype}>"

    def numpy(self):
        """Returns the same memory as a numpy array."""
        import numpy
        return numpy.asarray(self.view)


class _Lease:
    """Reference of a view to its handle."""

    def __init__(self, handle):
        self.handle = handle


# In the order of PLUMB_EXPLAIN_GRAPH and so on.
_STAGES = ("graph", "gradients", "optimized", "memory plan", "executable", "prompt", "probes", "updates", "svg")


class Model(_Object):
    """A model, with weights from a `seed`, from a safetensors file (`weights`, a path, or its content as bytes), or
    none yet. Methods that change weights need exclusive access; no session may run meanwhile."""
    _kind = "model"

    def __init__(self, runtime, spec, *, seed=None, weights=None):
        made = c_void_p()
        with _is(runtime, Runtime, "runtime")._use() as of_runtime, _is(spec, Spec, "spec")._use() as of_spec:
            _call("model_create", of_runtime, of_spec, byref(made))
            self._take(made, keep=runtime._live())
        self._leases = weakref.WeakSet()
        self._moves = False  # True if a trainer changes the layout of the weights
        if seed is not None:
            self.init(seed)
        if weights is not None:
            self.load(weights)

    def _figures(self):
        info = self.info
        return f": {info.n_layer} layers, {info.n_head} heads, d_model {info.d_model}, {info.parameters} parameters"

    @property
    def info(self):
        """The model's ModelInfo."""
        return ModelInfo._of(lambda info: load().plumb_model_get_info(self._live(), info))

    def describe(self):
        """Returns the resolved model as a dict: equations, Jacobians, routes, tensors (fields: model.schema.json)."""
        with self._use() as handle:
            return json.loads(_text("model_describe", handle))

    def explain(self, stage="graph", batch=1, seq=0, recipe="", layer=None):
        """Prints a stage of the compiler, for people: "graph", "gradients", "optimized", "memory plan" or "executable"
        of a training step, "prompt", "probes", "updates", or "svg", the data flow of a layer of each kind or of
        `layer` (from 0)."""
        if stage not in _STAGES:
            raise ValueError(f"stage must be one of {', '.join(_STAGES)}, not {stage!r}")
        recipe, number = _utf8(recipe, "recipe"), _STAGES.index(stage)
        if layer is not None and stage == "svg":
            number += 1  # PLUMB_EXPLAIN_LAYER_SVG
        options = _ExplainOptions(stage=number, layer=layer or 0, batch=batch, seq=seq, recipe=recipe,
                                  recipe_size=len(recipe))
        with self._use() as handle:
            return _text("model_explain", handle, byref(options)).decode()

    def work(self, training, tokens, weights="f32"):
        """Returns the min work of a pass over one sequence, as (flops, bytes of weights that a token reads): forward
        and backward (`training`), or feeding a session."""
        work = _Work()
        with self._use() as handle:
            _call("model_work", handle, 0 if training else 1, _integer(tokens, "tokens"), _weights(weights), byref(work))
        return work.flops, work.weight_bytes

    def text(self):
        """Returns a self-contained description, which includes placements and imports."""
        with self._use() as handle:
            return _text("model_text", handle).decode()

    def norms(self):
        """Returns the norms of the layers: {id: version}."""
        with self._use() as handle:
            return json.loads(_text("model_norms", handle))

    def probe_points(self):
        """Returns the names that Trainer.probe and Evaluator.probe take."""
        with self._use() as handle:
            return _text("model_probe_points", handle).decode().split()

    def init(self, seed):
        """Draws the weights from a seed, as `plumb train` does."""
        with self._use() as handle:
            _call("model_init", handle, _integer(seed, "seed", 0, 2**64 - 1))

    def load(self, weights):
        """Reads the weights from a safetensors file, or from the content of one (bytes)."""
        with self._use() as handle:
            if isinstance(weights, (bytes, bytearray)):
                _call("model_load_memory", handle, bytes(weights), len(weights))
            else:
                _call("model_load", handle, os.fsencode(weights))

    def map(self, path):
        """Maps the weights: like load(path), but they stay in the file, which is read on demand and must not change."""
        with self._use() as handle:
            self._refuse_views("mapping weights")
            self._moves = True
            _call("model_map", handle, os.fsencode(path))

    def _refuse_views(self, what):
        if self._leases:
            raise RuntimeError(f"{what} moves them, and a view of a tensor is still in use")

    def changed(self):
        """Makes sessions and evaluators use new weights. Call it after writing to tensors, before they run again."""
        load().plumb_model_changed(self._live())

    def save(self, path):
        """Saves the weights as a safetensors file, which is replaced atomically."""
        _call("model_save", self._live(), os.fsencode(path))

    def __len__(self):
        return load().plumb_model_tensor_count(self._live())

    def tensor(self, i):
        """Returns the i-th parameter, which may be written to while nothing else uses the model."""
        return self._tensor("model_tensor", self._live(), i)

    def tensors(self):
        """Returns all parameters, by name."""
        return {tensor.name: tensor for tensor in map(self.tensor, range(len(self)))}

    def _tensor(self, function, handle, i):
        tensor = _Tensor()
        i = operator.index(i)
        if not 0 <= i < 2**63:
            raise IndexError(f"there is no tensor {i}")
        _call(function, handle, i, byref(tensor))
        return Tensor(tensor, handle, self._leases)


class Tokenizer(_Object):
    """Converts text to token ids and back. Created from the text of a tokenizer.json, or by characters(), bytes() or
    from_directory()."""
    _kind = "tokenizer"

    def __init__(self, text):
        text, made = _utf8(text), c_void_p()
        _call("tokenizer_from_json", text, len(text), byref(made))
        self._take(made)

    @classmethod
    def from_directory(cls, path):
        """Returns the tokenizer in the directory of a run or a published model, with the special tokens in its
        files."""
        tokenizer, made = cls.__new__(cls), c_void_p()
        _call("tokenizer_from_directory", os.fsencode(path), byref(made))
        tokenizer._take(made)
        return tokenizer

    @classmethod
    def characters(cls, text, begin_end=False):
        """Returns a tokenizer with a token for each character in `text`; `begin_end` adds one that begins and ends a
        document."""
        return cls._create(0, _utf8(text), begin_end)

    @classmethod
    def bytes(cls, begin_end=False):
        """Returns a tokenizer with a token for each of the 256 bytes."""
        return cls._create(1, b"", begin_end)

    @classmethod
    def _create(cls, kind, text, begin_end):
        tokenizer, made = cls.__new__(cls), c_void_p()
        _call("tokenizer_create", kind, text, len(text), bool(begin_end), byref(made))
        tokenizer._take(made)
        return tokenizer

    def _figures(self):
        return f": {self.vocab_size} tokens"

    @property
    def json(self):
        """Returns the tokenizer as a tokenizer.json."""
        return _text("tokenizer_json", self._live()).decode()

    @property
    def vocab_size(self):
        """The number of tokens."""
        return load().plumb_tokenizer_vocab_size(self._live())

    @property
    def begin_end(self):
        """The token that begins and ends a document, or None."""
        token = load().plumb_tokenizer_begin_end(self._live())
        return None if token < 0 else token

    @property
    def prefix(self):
        """The ids to put before those of encode() in a prompt, such as <s>, as array.array("i")."""
        return _ids_of("tokenizer_prefix", 4, self._live())

    def encode(self, text):
        """Returns ids, as array.array("i"); there may be more than the text has characters."""
        text = _utf8(text)
        return _ids_of("tokenizer_encode", len(text), self._live(), text, len(text))

    def decode(self, ids, errors="replace"):
        """Returns the text of ids. Tokens of bytes may be invalid UTF-8, which `errors` handles (bytes.decode). Use
        decoder() for tokens that arrive one by one."""
        pointer, count, _kept = _tokens(ids)
        return _text("tokenizer_decode", self._live(), pointer, count).decode("utf-8", errors)

    @property
    def begin(self):
        """The token that begins a document, or None."""
        token = load().plumb_tokenizer_begin(self._live())
        return None if token < 0 else token

    @property
    def end_tokens(self):
        """The tokens that end a text, as array.array("i"), for Session.generate()."""
        return _ids_of("tokenizer_end_tokens", 4, self._live())

    def decoder(self, prompt=(), errors="replace", stop=()):
        """Returns a Decoder for tokens after those of `prompt`, whose text ends before the first of the strings
        `stop`."""
        return Decoder(self, prompt, errors, stop)


class Decoder(_Object):
    """Converts tokens that arrive one by one after those of `prompt` to text. The results of next() and finish()
    concatenate to what Tokenizer.decode() returns for all tokens at once, without the prompt's text. The text ends
    before the first of the strings `stop`, and `stopped` is then true; text that may become one is held back. For one
    thread at a time."""
    _kind = "decoder"

    def __init__(self, tokenizer, prompt=(), errors="replace", stop=()):
        (pointer, count, _kept), made = _tokens(prompt, "prompt"), c_void_p()
        _call("decoder_create", _is(tokenizer, Tokenizer, "tokenizer")._live(), pointer, count, byref(made))
        self._take(made)
        self._errors = errors
        texts = [_word(text, "stop") for text in ((stop,) if isinstance(stop, str) else stop)]
        if texts:
            _call("decoder_stop_at", self._live(), (c_char_p * len(texts))(*texts), len(texts))

    @property
    def stopped(self):
        """True once the text has reached one of the strings `stop`, after which next() returns ""."""
        return load().plumb_decoder_stopped(self._live()) != 0

    def next(self, ids):
        """Returns the text that these tokens, or this one, complete; "" if more tokens must come."""
        pointer, count, _kept = _tokens(ids)
        return self._text("decoder_next", pointer, count)

    def finish(self):
        """Returns the text that was held back. The next token begins a new text, without a prompt."""
        return self._text("decoder_finish")

    def _text(self, name, *arguments):
        text, size = c_void_p(), c_size_t()
        with self._use() as handle:
            _call(name, handle, *arguments, byref(text), byref(size))
            return ctypes.string_at(text, size.value).decode("utf-8", self._errors)


# --- Training and sampling ----------------------------------------------------------------------------

class StepInfo(NamedTuple):
    step: int
    tokens: int
    loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float

    @classmethod
    def _of(cls, info):
        return cls(*(getattr(info, field) for field in cls._fields))


class _ProbeFigures(NamedTuple):
    step: int
    kind: str
    name: str
    rms: float
    max: float
    mean: float
    nonfinite: int
    elements: int
    shape: Tuple[int, ...]
    dtype: str
    norm: float


class Probe(_ProbeFigures):
    """A tensor of a step, with statistics of its finite elements. `kind` is "activation", "gradient", "parameter" or
    "parameter gradient", `dtype` "f32" or "bf16". The statistics may be kept; the tensor exists until the callback
    returns: use `view`, or numpy(), which copies it."""

    @classmethod
    def _of(cls, seen, handle):
        kind = ("activation", "gradient", "parameter", "parameter gradient")[seen.kind]
        probe = cls(seen.step, kind, seen.name.decode(), seen.rms, seen.max, seen.mean, seen.nonfinite, seen.elements,
                    tuple(seen.shape[:seen.rank]), _DTYPES[seen.dtype], seen.norm)
        probe._view, probe._lease, probe._gone = None, None, False
        if seen.data:
            element, code = (c_float, "f") if probe.dtype == "f32" else (c_uint16, "H")
            memory = (element * math.prod(probe.shape)).from_address(seen.data)
            memory.lease = _Lease(handle)
            probe._lease = weakref.ref(memory.lease)
            probe._view = memoryview(memory).cast("B").cast(code, probe.shape).toreadonly()
        return probe

    @property
    def view(self):
        """A read-only memoryview of the tensor, of floats, or for "bf16" of its bits as uint16. None for a matrix that
        is trained in bf16, which has another layout. Valid until the callback returns."""
        if self._gone:
            raise ValueError(f"the tensor of probe {self.name} is gone: it is there until the callback returns")
        return self._view

    def numpy(self):
        """Returns a copy of the tensor as a numpy array of float32, which may be kept; None if `view` is None."""
        if self.view is None:
            return None
        import numpy
        if self.dtype == "f32":
            return numpy.array(self.view)
        return (numpy.asarray(self.view).astype(numpy.uint32) << 16).view(numpy.float32)

    def _end(self):
        """Ends access to the tensor, after the callback."""
        self._gone, self._view = True, None

    def _kept(self):
        """Returns True if views of the view still exist."""
        return self._lease is not None and self._lease() is not None


def _probing(probe, points, of_model):
    """Returns the C callback for probe(Probe), and the names of points."""

    def look(seen):
        found = Probe._of(seen, of_model)
        try:
            wish = probe(found)
        finally:
            found._end()
        if found._kept():
            raise RuntimeError(f"a view of the tensor of probe {found.name} outlives the callback: copy it")
        return wish

    tell = _ProbeFn(lambda _user, seen: _guarded(look, seen.contents))
    return tell, (c_char_p * len(points))(*(_word(point, "point") for point in points))


def recipe_text(recipe="", settings=(), name="recipe"):
    """Returns a complete recipe, with every field whose default is not zero. `settings`: a dict, or pairs, of fields
    and values to set in it; `name` stands for the file in messages."""
    recipe = _utf8(recipe, "recipe")
    pairs = settings.items() if isinstance(settings, collections.abc.Mapping) else settings
    words = [_word(str(word), "settings") for pair in pairs for word in pair]
    return _text("recipe_text", recipe, len(recipe), _word(name, "name"), (c_char_p * len(words))(*words),
                 len(words) // 2).decode()


class TrainerMemory(NamedTuple):
    """Memory of a trainer, in bytes."""
    weights: int
    gradients: int
    moments: int
    norm_states: int
    inputs: int
    workspace: int
    total: int
    exchange: int

    @classmethod
    def _of(cls, memory):
        return cls(*(getattr(memory, field) for field in cls._fields))


class ProfileRow(NamedTuple):
    """A row of a profile, summed over its steps; in_graph: it is an op."""
    name: str
    in_graph: bool
    runs: int
    seconds: float
    flops: float
    bytes: float


class StateTensor(NamedTuple):
    """A tensor of the state that a trainer holds between steps."""
    kind: str
    index: int
    name: str
    shape: Tuple[int, ...]


_STATES = ("model", "optimizer")


class Trainer(_Object):
    """Trains a model with a recipe (plumb.v1.Train, text format). `seq`: max tokens of a sequence (0: the context's
    length)."""
    _kind = "trainer"

    def __init__(self, model, recipe="", *, seq=0, draw_weights=False, reserve=0):
        """Creates a trainer. `draw_weights`: draw the weights from the recipe's seed, even if the model has some.
        `reserve`: bytes that must fit into memory next to the trainer."""
        recipe, made = _utf8(recipe, "recipe"), c_void_p()
        options = _TrainerOptions(recipe=recipe, recipe_size=len(recipe), seq=seq, draw_weights=bool(draw_weights),
                                  reserve=reserve)
        with _is(model, Model, "model")._use() as handle:
            model._moves |= re.search(rb"\bdtype\s*:\s*BF16\b", recipe) is not None
            if model._moves:
                model._refuse_views("training weights that are mapped, or in bf16,")
            _call("trainer_create", handle, byref(options), byref(made))
            self._take(made, keep=model._live())
        self._model = model
        self._tells = None  # thread that runs on_step

    @staticmethod
    def plan(model, recipe="", *, seq=0, ranks=0):
        """Computes the TrainerMemory of a trainer, without allocating it; with several `ranks` that of the one that
        needs most."""
        recipe, memory = _utf8(recipe, "recipe"), _TrainerMemory()
        options = _TrainerOptions(recipe=recipe, recipe_size=len(recipe), seq=seq, ranks=ranks)
        with _is(model, Model, "model")._use() as handle:
            _call("trainer_plan", handle, byref(options), byref(memory))
        return TrainerMemory._of(memory)

    @property
    def memory(self):
        """The TrainerMemory of this trainer."""
        memory = _TrainerMemory()
        load().plumb_trainer_get_memory(self._live(), byref(memory))
        return TrainerMemory._of(memory)

    @contextlib.contextmanager
    def _look(self):
        """Yields the handle for a call that changes nothing: like _use(), but also in on_step."""
        if self._tells == threading.get_ident():
            yield self._live()
        else:
            with self._use() as handle:
                yield handle

    def _figures(self):
        return f": {self.steps} steps of {self.step_tokens} tokens"

    @property
    def step_tokens(self):
        """The number of ids in a step: gradient_accumulation_steps x batch_size x seq."""
        return load().plumb_trainer_step_tokens(self._live())

    @property
    def steps(self):
        """The number of completed steps; set it to continue from another number."""
        return load().plumb_trainer_steps(self._live())

    @steps.setter
    def steps(self, steps):
        with self._use() as handle:
            _call("trainer_set_steps", handle, _integer(steps, "steps"))

    @property
    def learning_rate(self):
        """The learning rate of the next step."""
        return load().plumb_trainer_learning_rate(self._live())

    def scale_learning_rate(self, scale):
        """Multiplies the scheduled learning rate by `scale` from now on."""
        with self._use() as handle:
            _call("trainer_scale_learning_rate", handle, scale)

    def check(self):
        """Raises Error with Code.ABORTED if a weight, a moment or a norm state is not finite."""
        with self._look() as handle:
            _call("trainer_check", handle)

    def step(self, inputs, targets):
        """Does one step on ids; the target of each is the next token, or -1 for none. Returns a StepInfo."""
        (inputs, n, _kept), (targets, of_targets, _kept_too) = _tokens(inputs, "inputs"), _tokens(targets, "targets")
        if n != of_targets:
            raise ValueError(f"{n} inputs and {of_targets} targets")
        info = _StepInfo()
        with self._use() as handle:
            _call("trainer_step", handle, inputs, targets, n, byref(info))
        return StepInfo._of(info)

    def step_micro_batches(self, micro_batches):
        """Does one step on gradient_accumulation_steps pairs (inputs, targets) of batch_size rows each, which may be
        shorter than seq and may differ in length. Returns a StepInfo."""
        micro_batches = [tuple(_row_major(ids, name) for ids, name in zip(pair, ("inputs", "targets")))
                         for pair in micro_batches]

        def put(i, inputs, targets, seq):
            (ids, shape), (of_targets, shape_of_targets) = micro_batches[i]
            if shape != shape_of_targets or len(shape) != 2:
                raise ValueError(f"micro-batch {i}: inputs have the shape {shape}, targets {shape_of_targets}; both "
                                 "must be [rows, tokens]")
            if shape[1] > seq[0]:
                raise ValueError(f"micro-batch {i}: {shape[1]} tokens a row are more than {seq[0]}")
            if shape[0] * seq[0] != longest:
                raise ValueError(f"micro-batch {i} has {shape[0]} rows, not {longest // seq[0]}")
            seq[0] = shape[1]
            for into, source in ((inputs, ids), (targets, of_targets)):
                ctypes.memmove(into, (c_int32 * len(source)).from_buffer(source), 4 * len(source))

        fill = _MicroBatchFn(lambda _user, i, inputs, targets, seq: _guarded(put, i, inputs, targets, seq))
        longest, info = self.step_tokens // max(1, len(micro_batches)), _StepInfo()
        with self._use() as handle:
            _call("trainer_step_with_callback", handle, fill, None, byref(info))
        return StepInfo._of(info)

    def run(self, batches, on_step=None):
        """Does steps until the recipe's max_steps or the end of `batches`, pairs (inputs, targets). on_step(StepInfo)
        is called after each, and may save() and read gradients and weights. An exception in it, or Ctrl-C, ends the run
        after a whole step. Raises Cancelled if on_step returns False or cancel() is called."""
        batches = iter(batches)
        with self._use() as handle, _Interruptible() as interrupt:
            def fill(inputs, targets, n):
                for into, ids, name in zip((inputs, targets), next(batches), ("inputs", "targets")):
                    source, count, _kept = _tokens(ids, name)
                    if count != n:
                        raise ValueError(f"{name}: a step has {n} ids, not {count}")
                    ctypes.memmove(into, source, 4 * n)

            def batch(_user, _step, inputs, targets, n):
                if interrupt.stops():
                    return 1
                try:
                    return _guarded(fill, inputs, targets, n)
                finally:
                    if isinstance(getattr(_thread, "raised", None), StopIteration):
                        _thread.raised = None  # end of the batches

            def told(_user, info):
                if interrupt.stops():
                    return 1
                self._tells = threading.get_ident()
                try:
                    return _guarded(on_step, StepInfo._of(info.contents))
                finally:
                    self._tells = None

            _call("trainer_run", handle, _BatchFn(batch), _StepFn(told) if on_step else _StepFn(), None)

    def cancel(self):
        """Ends run() before its next step. Any thread."""
        load().plumb_trainer_cancel(self._live())

    def save(self, path):
        """Saves weights and optimizer state as a safetensors file, which is replaced atomically. Also in on_step."""
        with self._look() as handle:
            _call("trainer_save", handle, os.fsencode(path))

    def load(self, path):
        """Loads a file of save() into a trainer of the same model, which then continues to the same bits."""
        with self._use() as handle:
            _call("trainer_load", handle, os.fsencode(path))

    def probe(self, every, probe, points=()):
        """Calls probe(Probe) for tensors in step 1 and every `every`-th step from now on; 0: never. `points` are names
        ("grad.*", "logits"); none: streams, norms, logits and parameters. Returning False ends run(). With None for
        `probe`, get_probes() returns the statistics."""
        of_model = self._model._live()
        tell, names = _probing(probe, points, of_model)
        if probe is None:
            tell = _ProbeFn()
        with self._use() as handle:
            _call("trainer_probe", handle, _integer(every, "every"), names, len(points), tell, None)
            handle.keep = (of_model, tell)

    def get_probes(self):
        """Returns the statistics of the last step, over all its micro-batches, as a list of Probe without tensors; []
        if it was not probed."""
        with self._look() as handle:
            return [Probe._of(seen, None) for seen in _rows("trainer_get_probe", handle, _Probe)]

    def profile(self, on=True):
        """Starts a new profile of the following steps, or ends it."""
        with self._use() as handle:
            _call("trainer_profile", handle, bool(on))

    def profile_rows(self):
        """Returns the profile as a list of ProfileRow: the total, ops, stages, the rest."""
        with self._use() as handle:
            return [ProfileRow(row.name.decode(), row.in_graph == 1, row.runs, row.seconds, row.flops, row.bytes)
                    for row in _rows("trainer_profile_row", handle, _ProfileRow)]

    def state(self, kind):
        """Returns the state between steps, as a list of StateTensor: "model" (weights, norms' buffers) or
        "optimizer"."""
        if kind not in _STATES:
            raise ValueError(f"kind must be one of {', '.join(_STATES)}, not {kind!r}")
        with self._look() as handle:
            return [StateTensor(kind, i, found.name.decode(), tuple(found.shape[:found.rank]))
                    for i, found in enumerate(_rows("trainer_state", handle, _Tensor, _STATES.index(kind)))]

    def read_state(self, tensor):
        """Returns a copy of a StateTensor, as a memoryview with its shape."""
        count = math.prod(tensor.shape)
        copy = (c_float * count)()
        with self._look() as handle:
            _call("trainer_read_state", handle, _STATES.index(tensor.kind), tensor.index, 0, count, copy)
        return memoryview(copy).cast("B").cast("f", tensor.shape)

    def write_state(self, tensor, values):
        """Sets a StateTensor from a buffer with as many floats. Writing back all of a state, and `steps`, continues to
        the same bits."""
        view = memoryview(values)
        if view.format != "f" or view.nbytes != 4 * math.prod(tensor.shape):
            raise ValueError(f"{tensor.name} is float32 {list(tensor.shape)}, not {view.format!r} {list(view.shape)}")
        floats = array.array("f", view.tobytes())
        with self._use() as handle:
            _call("trainer_write_state", handle, _STATES.index(tensor.kind), tensor.index, 0, len(floats),
                  (c_float * len(floats)).from_buffer(floats))

    def gradient(self, i):
        """Returns the gradient of the last step for the i-th parameter, valid until the next step, as a Tensor. Also in
        on_step."""
        with self._look() as handle:
            return self._model._tensor("trainer_gradient", handle, i)


def _weights(kind):
    kinds = ("f32", "bf16", "int8")
    if kind not in kinds:
        raise ValueError(f"weights must be one of {', '.join(kinds)}, not {kind!r}")
    return kinds.index(kind)


def _floats(pointer, count, handle):
    """Returns a view of floats that the library keeps for a handle."""
    memory = (c_float * count).from_address(ctypes.addressof(pointer.contents))
    memory.lease = _Lease(handle)
    return memoryview(memory).cast("B")


_FINISH_REASONS = (None, "stop", "length", "context")


class Session(_Object):
    """`sequences` (1 to 16) that grow token by token, computed with `weights` in "f32", "bf16" or "int8"."""
    _kind = "session"

    def __init__(self, model, sequences=1, *, weights="f32"):
        options, made = _SessionOptions(sequences=sequences, weights=_weights(weights)), c_void_p()
        self._info, self._count, self._weights = _is(model, Model, "model").info, options.sequences or 1, weights
        _call("session_create", model._live(), byref(options), byref(made))
        self._take(made, keep=model._live())
        self._finish_reason = None

    def _figures(self):
        lengths = ", ".join(str(self.length(sequence)) for sequence in range(self._count))
        return f": {lengths} of {self._info.context_length} tokens, {self._weights}"

    def feed(self, ids, sequence=0):
        """Appends tokens to a sequence."""
        ids, count, _kept = _tokens(ids)
        with self._use() as handle:
            _call("session_feed", handle, _sequence(sequence), ids, count)

    def append(self, token, sequence=0):
        """Appends one token; a sequence with a full context restarts with the newer half of its tokens."""
        with self._use() as handle:
            _call("session_append", handle, _sequence(sequence), _integer(token, "token", -2**31, 2**31 - 1))

    def feed_batch(self, ids):
        """Appends ids[s] to each sequence s, in one pass over the weights."""
        ids, count, _kept = _tokens(ids)
        with self._use() as handle:
            _call("session_feed_batch", handle, ids, count)

    def logits(self, sequence=0):
        """Returns the logits of the next token as a memoryview, valid until the next call; None before a token was
        fed."""
        handle = self._live()
        logits = load().plumb_session_logits(handle, _sequence(sequence))
        if not logits:
            return None
        return _floats(logits, self._info.vocab_size, handle).cast("f")

    def length(self, sequence=0):
        """Returns the number of tokens in a sequence."""
        return load().plumb_session_length(self._live(), _sequence(sequence))

    def truncate(self, length, sequence=0):
        """Removes all but the first `length` tokens."""
        with self._use() as handle:
            _call("session_truncate", handle, _sequence(sequence), _integer(length, "length"))

    def generate(self, sequence=0, *, on_token=None, max_tokens=0, greedy=False, temperature=1.0, top_k=0,
                 top_p=1.0, seed=0, index=0, drawn=0, vocabulary=0, end_tokens=()):
        """Draws tokens and appends all but the last. Ends after max_tokens, also beyond the context, or, if that is 0,
        when the context is full; when one of end_tokens is drawn, which is not returned; or when on_token(id) returns
        False. `finish_reason` has the reason. `greedy` takes the most likely token, and ignores temperature,
        top_k and top_p. Samples of one seed differ by their index. Returns the ids."""
        if top_p == 0:  # in C, 0 means the default
            raise ValueError("top_p must be above 0 and at most 1 (1 keeps all tokens), is 0")
        if temperature == 0 and not greedy:
            raise ValueError("temperature must be above 0, is 0; greedy=True takes the most likely token")
        ends, end_count, _kept = _tokens(end_tokens, "end_tokens")
        options = _SampleOptions(greedy=bool(greedy), max_tokens=max_tokens, top_k=top_k, temperature=temperature,
                                 top_p=top_p, seed=seed, index=index, drawn=drawn, vocabulary=vocabulary,
                                 end_tokens=ctypes.cast(ends, POINTER(c_int32)), end_token_count=end_count)
        ids = []
        with self._use() as handle, _Interruptible() as interrupt:
            def told(_user, token):
                ids.append(token)
                return 1 if interrupt.stops() else _guarded(on_token, token) if on_token else 0

            self._finish_reason = None
            _call("session_generate", handle, _sequence(sequence), byref(options), _TokenFn(told), None)
            self._finish_reason = _FINISH_REASONS[load().plumb_session_finish_reason(handle)]
        return ids

    def stream(self, sequence=0, *, max_tokens=0, drawn=0, **options):
        """Yields the tokens of generate() as they are drawn."""
        end = drawn + max_tokens if max_tokens else None
        while True:
            ids = self.generate(sequence, max_tokens=1, drawn=drawn, **options)
            drawn += 1
            is_full = end is None and self.length(sequence) == self._info.context_length
            stops = self._finish_reason == "stop"
            if not stops and drawn != end:
                self._finish_reason = "context" if is_full else "stop"  # the consumer stopped
            yield from ids
            if stops or drawn == end or is_full:
                return
            self.append(ids[0], sequence)

    @property
    def finish_reason(self):
        """The reason why the last generate() or stream() ended: "stop" (an end token, on_token, or the consumer
        stopped), "length" (max_tokens), "context" (it is full, and max_tokens is 0). None: it failed, or was not
        called."""
        return self._finish_reason

    def profile(self, on=True):
        """Starts a new profile of the following passes that feed tokens, or ends it."""
        with self._use() as handle:
            _call("session_profile", handle, bool(on))

    def profile_rows(self):
        """Returns the profile, like Trainer.profile_rows."""
        with self._use() as handle:
            return [ProfileRow(row.name.decode(), row.in_graph == 1, row.runs, row.seconds, row.flops, row.bytes)
                    for row in _rows("session_profile_row", handle, _ProfileRow)]

    def cancel(self):
        """Ends generate() before its next token, with Cancelled. Any thread."""
        load().plumb_session_cancel(self._live())


class Evaluator(_Object):
    """Computes the loss of `rows` sequences of at most `seq` tokens (0: the context's length), and their `logits` and
    the `gradients` of the loss if requested. Changes nothing. For one thread at a time."""
    _kind = "evaluator"

    def __init__(self, model, rows=1, *, seq=0, weights="f32", logits=False, gradients=False):
        options, made = _EvaluatorOptions(rows=rows, seq=seq, weights=_weights(weights), logits=bool(logits),
                                          gradients=bool(gradients)), c_void_p()
        self._model = model
        self._rows, self._weights, self._wants_logits = options.rows or 1, weights, bool(logits)
        self._vocab_size = _is(model, Model, "model").info.vocab_size
        _call("evaluator_create", model._live(), byref(options), byref(made))
        self._take(made, keep=model._live())

    def _figures(self):
        return f": {self._rows} rows, {self._weights}{', logits' if self._wants_logits else ''}"

    @staticmethod
    def plan(model, rows=1, *, seq=0, weights="f32", logits=False, gradients=False):
        """Computes the memory of an evaluator next to the weights, in bytes, without allocating it."""
        options, taken = _EvaluatorOptions(rows=rows, seq=seq, weights=_weights(weights), logits=bool(logits),
                                           gradients=bool(gradients)), c_int64()
        with _is(model, Model, "model")._use() as handle:
            _call("evaluator_plan", handle, byref(options), byref(taken))
        return taken.value

    def loss(self, inputs, targets):
        """Returns the mean loss over the targets of inputs [rows, n / rows], in nats; -1: no target."""
        (inputs, n, _kept), (targets, of_targets, _kept_too) = _tokens(inputs, "inputs"), _tokens(targets, "targets")
        if n != of_targets:
            raise ValueError(f"{n} inputs and {of_targets} targets")
        loss = c_double()
        with self._use() as handle:
            _call("evaluator_run", handle, inputs, targets, n, byref(loss))
        return loss.value

    def logits(self, inputs):
        """Returns logits as a memoryview [rows, n / rows, vocab_size], valid until the next call."""
        if not self._wants_logits:
            raise ValueError("the evaluator was made without logits=True")
        inputs, n, _kept = _tokens(inputs, "inputs")
        with self._use() as handle:
            _call("evaluator_run", handle, inputs, None, n, None)
            logits = load().plumb_evaluator_logits(handle)
            shape = (self._rows, n // self._rows, self._vocab_size)
            return _floats(logits, n * self._vocab_size, handle).cast("f", shape)

    def gradient(self, i):
        """Returns the gradient of the last loss() for the i-th parameter, valid until the next call, as a Tensor."""
        with self._use() as handle:
            return self._model._tensor("evaluator_gradient", handle, i)

    def probe(self, probe, points=()):
        """Calls probe(Probe) for tensors in each further loss(), like Trainer.probe; None turns it off. Requires
        `gradients`."""
        of_model = self._model._live()
        tell, names = (_ProbeFn(), None) if probe is None else _probing(probe, points, of_model)
        with self._use() as handle:
            _call("evaluator_probe", handle, names, len(names or ()), tell, None)
            handle.keep = (of_model, tell)
