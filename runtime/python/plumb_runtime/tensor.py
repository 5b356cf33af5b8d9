# SPDX-License-Identifier: Apache-2.0
"""Tensors in the library's memory, which Python shares without copies."""
from __future__ import annotations

import math
from collections.abc import MutableSet
from ctypes import c_float
from typing import TYPE_CHECKING, Any, Optional

from . import _structs as structs
from ._handles import Handle, Lease, NotPickled

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

DTYPES = {1: "f32", 2: "bf16", 4: "f64"}
_CPU = 1  # kDLCPU of DLPack


def floats(address: int, shape: tuple[int, ...], handle: Handle) -> tuple[memoryview[float], Lease]:
    """Returns a writable view of floats, which keeps their handle alive, and its lease, which lives as long as the view
    and all that is made of it."""
    memory: Any = (c_float * math.prod(shape)).from_address(address)
    memory.lease = Lease(handle)
    return memoryview(memory).cast("B").cast("f", shape), memory.lease


class Tensor(NotPickled):
    """A tensor of float32 in the library's memory, with `name` and `shape`. `view` is a writable memoryview of that
    shape, which keeps the memory alive, as do arrays: numpy(), numpy.asarray(tensor), and by DLPack
    torch.from_dlpack(tensor) and jax.dlpack.from_dlpack(tensor). After writing to weights call Model.changed()."""

    def __init__(self, tensor: structs.Tensor, handle: Handle, leases: MutableSet[Lease]) -> None:
        self.name: str = tensor.name.decode()
        self.dtype: str = DTYPES[tensor.dtype]
        self.shape: tuple[int, ...] = tuple(tensor.shape[:tensor.rank])
        self.view, lease = floats(tensor.data, self.shape, handle)
        leases.add(lease)

    def __repr__(self) -> str:
        return f"<plumb.Tensor {self.name} {list(self.shape)} {self.dtype}>"

    def numpy(self) -> NDArray[float32]:
        """Returns the same memory as an array [*shape]: writing to it changes the tensor."""
        import numpy
        return numpy.asarray(self.view)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> NDArray[Any]:
        import numpy
        return numpy.array(self.view, dtype=dtype) if copy else numpy.asarray(self.view, dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0
