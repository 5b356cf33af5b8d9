# SPDX-License-Identifier: Apache-2.0
"""Structs and callback types of plumb.h, for ctypes. A test compares them with the header."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from ._arguments import integer

_INTEGERS = (c_int32, c_int64, c_uint32, c_uint64)


class Struct(ctypes.Structure):
    """A struct that begins with struct_size, which is set. Refuses integers that a field would truncate."""

    def __init__(self, **fields: object) -> None:
        for field in self._fields_:
            name, kind = field[0], field[1]
            if name in fields and kind in _INTEGERS:
                bits, is_signed = 8 * ctypes.sizeof(kind), kind in (c_int32, c_int64)
                least = -2**(bits - 1) if is_signed else 0
                fields[name] = integer(fields[name], name, least, least + 2**bits - 1)
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class RuntimeOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("threads", c_int32), ("log", c_void_p),
                ("log_user", c_void_p), ("gemm", c_char_p), ("allocator", c_void_p), ("executor", c_void_p),
                ("plugin_path", c_char_p), ("placement_path", c_char_p), ("install_prefix", c_char_p)]


class ModelInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("n_layer", c_int64), ("d_model", c_int64), ("n_head", c_int64),
                ("vocab_size", c_int64), ("context_length", c_int64), ("parameters", c_int64),
                ("weight_bytes", c_int64), ("cache_bytes", c_int64), ("bidirectional", c_int32),
                ("token_types", c_int32)]


class TokenizerInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("begin", c_int32), ("end", c_int32), ("vocab_size", c_int64),
                ("prefix", POINTER(c_int32)), ("prefix_count", c_int64), ("end_tokens", POINTER(c_int32)),
                ("end_token_count", c_int64)]


class Tensor(Struct):
    _fields_ = [("struct_size", c_uint32), ("name", c_char_p), ("dtype", c_int32), ("rank", c_int32),
                ("shape", c_int64 * 4), ("data", c_void_p)]


class Loss(Struct):
    _fields_ = [("struct_size", c_uint32), ("step", c_int64), ("micro_batch", c_int64), ("first_row", c_int64),
                ("rows", c_int64), ("seq", c_int64), ("vocab_size", c_int64), ("inputs", c_void_p),
                ("targets", c_void_p), ("logits", c_void_p), ("gradient", c_void_p), ("loss", c_double)]


LossFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Loss))


class TrainerOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("draw_weights", c_int32), ("ranks", c_int32), ("recipe", c_char_p),
                ("seq", c_int64), ("reserve", c_int64), ("communicator", c_void_p), ("loss", LossFn),
                ("loss_user", c_void_p)]


class TrainerMemory(Struct):
    _fields_ = [("struct_size", c_uint32), ("weights", c_int64), ("gradients", c_int64), ("moments", c_int64),
                ("norm_states", c_int64), ("inputs", c_int64), ("workspace", c_int64), ("total", c_int64),
                ("exchange", c_int64)]


class ProfileRow(Struct):
    _fields_ = [("struct_size", c_uint32), ("in_graph", c_int32), ("name", c_char_p), ("runs", c_int64),
                ("seconds", c_double), ("flops", c_double), ("bytes", c_double)]


class StepInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("step", c_int64), ("tokens", c_int64), ("loss", c_double),
                ("gradient_norm", c_double), ("learning_rate", c_double), ("seconds", c_double)]


class SessionOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("sequences", c_int32), ("weights", c_int32)]


class SampleOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("max_tokens", c_int64), ("top_k", c_int64), ("vocabulary", c_int64),
                ("temperature", c_double), ("top_p", c_double), ("seed", c_uint64),
                ("index", c_uint64), ("drawn", c_int64), ("end_tokens", POINTER(c_int32)),
                ("end_token_count", c_int64)]


class EvaluatorOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("weights", c_int32), ("rows", c_int64), ("seq", c_int64),
                ("logits", c_int32), ("gradients", c_int32)]


class ExplainOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("stage", c_int32), ("layer", c_int64), ("batch", c_int64),
                ("seq", c_int64), ("recipe", c_char_p)]


class Work(Struct):
    _fields_ = [("struct_size", c_uint32), ("flops", c_double), ("weight_bytes", c_int64)]


class Probe(Struct):
    _fields_ = [("struct_size", c_uint32), ("kind", c_int32), ("step", c_int64), ("name", c_char_p), ("rms", c_double),
                ("max", c_double), ("mean", c_double), ("nonfinite", c_int64), ("elements", c_int64),
                ("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * 4), ("data", c_void_p), ("norm", c_double)]


class RunStep(Struct):
    _fields_ = [("struct_size", c_uint32), ("step", c_int64), ("max_steps", c_int64), ("loss", c_double),
                ("learning_rate", c_double), ("grad_norm", c_double), ("tokens", c_int64), ("seconds", c_double),
                ("val_loss", c_double), ("checkpoint", c_char_p), ("incidents", c_char_p)]


RunStepFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(RunStep))


class RunTraining(Struct):
    _fields_ = [("struct_size", c_uint32), ("resume", c_int32), ("model", c_char_p), ("data", c_char_p),
                ("recipe", c_char_p), ("out", c_char_p), ("init", c_char_p), ("settings", POINTER(c_char_p)),
                ("settings_count", c_int64), ("probe_every", c_int64), ("probe_points", POINTER(c_char_p)),
                ("probe_points_count", c_int64), ("stop_at", c_int64),
                ("on_step", RunStepFn), ("user", c_void_p)]


class StudyProgress(Struct):
    _fields_ = [("struct_size", c_uint32), ("runs", c_int64), ("ended", c_int64), ("reused", c_int64),
                ("steps", c_int64), ("steps_taken", c_int64)]


StudyProgressFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(StudyProgress))


class StudyOptions(Struct):
    _fields_ = [("struct_size", c_uint32), ("overwrite", c_int32), ("out", c_char_p), ("store", c_char_p),
                ("runtime", POINTER(RuntimeOptions)), ("norms", POINTER(c_void_p)), ("norms_count", c_int64),
                ("command", c_char_p), ("on_progress", StudyProgressFn), ("user", c_void_p)]


LogFn = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
BatchFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int64, POINTER(c_int32), POINTER(c_int32), c_int64)
MicroBatchFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int64, POINTER(c_int32), POINTER(c_int32), POINTER(c_int64))
StepFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(StepInfo))
TokenFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_int32)
ProbeFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Probe))
Floats = POINTER(c_float)
