# SPDX-License-Identifier: Apache-2.0
"""Probes: tensors of a step with their statistics, and profiles."""
from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from ctypes import c_char_p, c_float, c_uint16
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from . import _structs as structs
from ._arguments import c_string
from ._calls import guarded, listed
from ._handles import Handle, Lease
from .tensor import DTYPES

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

_KINDS = ("activation", "gradient", "parameter", "parameter gradient")


class _ProbeFigures(NamedTuple):
    step: int
    kind: str
    name: str
    rms: float
    max: float
    mean: float
    nonfinite: int
    elements: int
    shape: tuple[int, ...]
    dtype: str
    norm: float


class Probe(_ProbeFigures):
    """A tensor of a step, with statistics of its finite elements. `kind` is "activation", "gradient", "parameter" or
    "parameter gradient", `dtype` "f32" or "bf16", `shape` of activations and their gradients [rows, positions, width].
    The statistics may be kept; the tensor exists until the callback returns: use `view`, or numpy(), which copies
    it."""
    _view: Optional[memoryview[Any]]
    _lease: Optional[weakref.ref[Lease]]
    _gone: bool

    @classmethod
    def _of(cls, seen: structs.Probe, handle: Optional[Handle]) -> Probe:
        probe = cls(seen.step, _KINDS[seen.kind], seen.name.decode(), seen.rms, seen.max, seen.mean, seen.nonfinite,
                    seen.elements, tuple(seen.shape[:seen.rank]), DTYPES[seen.dtype], seen.norm)
        probe._view, probe._lease, probe._gone = None, None, False
        if seen.data and handle is not None:
            element: Any = c_float if probe.dtype == "f32" else c_uint16
            memory: Any = (element * math.prod(probe.shape)).from_address(seen.data)
            memory.lease = Lease(handle)
            probe._lease = weakref.ref(memory.lease)
            code: Any = "f" if probe.dtype == "f32" else "H"
            probe._view = memoryview(memory).cast("B").cast(code, probe.shape).toreadonly()
        return probe

    @property
    def view(self) -> Optional[memoryview[Any]]:
        """A read-only memoryview [*shape] of the tensor, of floats, or for "bf16" of its bits as uint16. None for a
        matrix that is trained in bf16, which has another layout. Valid until the callback returns."""
        if self._gone:
            raise ValueError(f"the tensor of probe {self.name} is gone: it is there until the callback returns")
        return self._view

    def numpy(self) -> Optional[NDArray[float32]]:
        """Returns a copy of the tensor as an array [*shape] of float32, which may be kept; None if `view` is None."""
        if self.view is None:
            return None
        import numpy
        if self.dtype == "f32":
            return numpy.array(self.view)
        bits = numpy.asarray(self.view).astype(numpy.uint32) << 16
        return bits.view(numpy.float32)

    def _end(self) -> None:
        """Ends access to the tensor, after the callback."""
        self._gone, self._view = True, None

    def _is_kept(self) -> bool:
        """Returns True if views of the view still exist."""
        return self._lease is not None and self._lease() is not None


def callback_of(probe: Callable[[Probe], object], points: Sequence[str], of_model: Handle) -> tuple[Any, Any]:
    """Returns the C callback for probe(Probe), and the names of points."""

    def look(seen: structs.Probe) -> object:
        found = Probe._of(seen, of_model)
        try:
            wish = probe(found)
        finally:
            found._end()
        if found._is_kept():
            raise RuntimeError(f"a view of the tensor of probe {found.name} outlives the callback: copy it")
        return wish

    def tell(_user: Any, seen: Any) -> int:
        return guarded(look, seen.contents)

    return structs.ProbeFn(tell), names_of(points)


def names_of(points: Sequence[str]) -> Any:
    """Returns names as an array of C strings."""
    return (c_char_p * len(points))(*(c_string(point, "point") for point in points))


class ProfileRow(NamedTuple):
    """A row of a profile, summed over its steps; in_graph: it is an op."""
    name: str
    in_graph: bool
    runs: int
    seconds: float
    flops: float
    bytes: float


def profile_rows(kind: str, handle: Handle) -> list[ProfileRow]:
    """Returns the rows of a profile of a trainer or a session: the total, ops, stages, the rest."""
    return [ProfileRow(row.name.decode(), row.in_graph == 1, row.runs, row.seconds, row.flops, row.bytes)
            for row in listed(f"{kind}_profile_rows", handle, structs.ProfileRow)]
