# SPDX-License-Identifier: Apache-2.0
"""Structs and function types of plumb/norm_plugin.h, for ctypes. A test compares them with the header."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

DTYPE_F32, DTYPE_F64 = 1, 4
CALL_DX_ACCUMULATE = 1 << 2
BACKWARD_READS_X = 1 << 0
ATTR_F64 = 1
INIT_CONST = 2


class AttrValue(ctypes.Structure):
    _fields_ = [("f", c_double), ("i", c_int64), ("s", c_char_p)]


class AttrDef(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("doc", c_char_p), ("type", c_uint32), ("flags", c_uint32), ("min", c_double),
                ("max", c_double), ("def", AttrValue), ("choices", c_void_p)]


class TensorDef(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("doc", c_char_p), ("flags", c_uint32), ("ndim", c_uint32), ("dims", c_uint32 * 4),
                ("init", c_uint32), ("reserved", c_uint32), ("init_a", c_double), ("init_b", c_double),
                ("lr_scale", c_double), ("offset", c_double), ("fill", c_void_p)]


class NormLayout(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("tensor_stride", c_uint32), ("n_params", c_uint32), ("n_buffers", c_uint32),
                ("params", POINTER(TensorDef)), ("buffers", POINTER(TensorDef)), ("saved_per_row", c_uint32),
                ("saved_per_call", c_uint32), ("partial_elems", c_uint32), ("backward_needs", c_uint32),
                ("scratch_bytes", c_size_t), ("scratch_bytes_per_row", c_size_t), ("max_chunks", c_uint32),
                ("reserved", c_uint32), ("heads", c_uint32), ("context_wants", c_uint32)]


class NormCall(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("dtype", c_uint32), ("dim", c_uint32),
                ("rows", c_int64), ("x", c_void_p), ("x_pitch", c_int64), ("y", c_void_p), ("y_pitch", c_int64),
                ("dy", c_void_p), ("dy_pitch", c_int64), ("dx", c_void_p), ("dx_pitch", c_int64),
                ("params", POINTER(c_void_p)),
                ("buffers", c_void_p), ("dparams", POINTER(c_void_p)), ("saved", c_void_p), ("saved_pitch", c_int64),
                ("call_saved", c_void_p), ("scratch", c_void_p), ("rng_key", c_uint64), ("err", c_void_p),
                ("err_cap", c_size_t), ("x2", c_void_p), ("x2_pitch", c_int64), ("dx2", c_void_p),
                ("dx2_pitch", c_int64), ("context", c_void_p)]


CreateFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_uint32, POINTER(AttrValue), POINTER(c_void_p), c_void_p, c_size_t)
DestroyFn = ctypes.CFUNCTYPE(None, c_void_p)
LayoutFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(NormLayout))
RowsFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(NormCall), c_int64, c_int64)


class NormPlugin(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("min_host_minor", c_uint32), ("id", c_char_p), ("name", c_char_p),
                ("version", c_char_p), ("vendor", c_char_p), ("license", c_char_p), ("doc", c_char_p),
                ("flags", c_uint32), ("dtypes", c_uint32), ("n_attrs", c_uint32), ("attr_stride", c_uint32),
                ("attrs", POINTER(AttrDef)), ("available", c_void_p), ("create", CreateFn), ("destroy", DestroyFn),
                ("layout", LayoutFn), ("forward", RowsFn), ("backward", RowsFn), ("stats_partial", c_void_p),
                ("stats_combine", c_void_p), ("stats_finalize", c_void_p), ("get_extension", c_void_p)]
