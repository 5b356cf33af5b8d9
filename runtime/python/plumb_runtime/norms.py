# SPDX-License-Identifier: Apache-2.0
"""Norms written in Python, for experiments. They are slow: every range of rows is a call of Python, which holds the
GIL. docs/first-norm.md writes a fast one in C."""
from __future__ import annotations

import ctypes
import inspect
import itertools
import logging
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from . import _norm_abi as abi
from ._calls import thread
from .errors import Code

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_registered: set[Norm] = set()  # a table must live as long as the process


class _Memory:
    """Rows in the library's memory, which numpy.asarray reads and writes in place."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int,
                 is_read_only: bool) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, is_read_only), "shape": shape, "strides": strides,
                                    "typestr": "<f4" if dtype == abi.DTYPE_F32 else "<f8"}


class _Instance(NamedTuple):
    """A norm with its attributes, for one dim; `tensors` are definitions that the host points to."""
    attributes: dict[str, float]
    tensors: Any


class Norm:
    """A norm written in Python, made by plumb.norm. Runtime.register_plugin registers it, and models name its `id`."""

    def __init__(self, forward: Callable[..., Any], id: str, parameters: Mapping[str, float],
                 attributes: Mapping[str, float], version: Optional[str]) -> None:
        self.id, self._version = id, version
        self._forward, self._parameters, self._attributes = forward, dict(parameters), dict(attributes)
        self._backward: Any = None
        self._require(forward, "x")
        self._instances: dict[int, _Instance] = {}  # by handle
        self._handles = itertools.count(1)
        attrs = (abi.AttrDef * len(self._attributes))(*(
            abi.AttrDef(name.encode(), b"", abi.ATTR_F64, 0, float("nan"), float("nan"), abi.AttrValue(value, 0, None))
            for name, value in self._attributes.items()))
        self._table = abi.NormPlugin(
            struct_size=ctypes.sizeof(abi.NormPlugin), id=id.encode(), name=id.rpartition(".")[2].encode(),
            version=b"", vendor=b"", license=b"",
            doc=(forward.__doc__ or "A norm written in Python.").strip().encode(), dtypes=abi.DTYPE_F32 | abi.DTYPE_F64,
            n_attrs=len(attrs), attr_stride=ctypes.sizeof(abi.AttrDef), attrs=attrs,
            create=abi.CreateFn(self._create), destroy=abi.DestroyFn(self._destroy),
            layout=abi.LayoutFn(self._layout), forward=abi.RowsFn(self._run_forward),
            backward=abi.RowsFn(self._run_backward))

    def __repr__(self) -> str:
        return f"<plumb.Norm {self.id}>"

    def backward(self, function: Callable[..., Any]) -> Norm:
        """Sets the gradient, as a decorator: backward(x, dy, **parameters, **attributes) returns dx [rows, dim], or
        with parameters (dx, gradient [dim] of each, summed over the rows, in the order of their declaration)."""
        self._require(function, "x", "dy")
        self._backward = function
        return self

    @property
    def address(self) -> int:
        """The address of the norm's plumb_norm_plugin, which lives as long as the process."""
        self._require_gradient()
        self._table.version = (self._version if self._version is not None else self._hash()).encode()
        _registered.add(self)
        return ctypes.addressof(self._table)

    def check(self, dim: int = 16, rows: int = 5, seed: int = 0, **attributes: float) -> None:
        """Compares the gradients with central differences in float64, on random x [rows, dim] and parameters, and
        checks that a row does not depend on other rows. Raises ValueError with the first wrong element."""
        import numpy
        self._require_gradient()
        draw = numpy.random.default_rng(seed)
        x, dy = draw.standard_normal((2, rows, dim))
        parameters = {name: value + draw.standard_normal(dim) / 4 for name, value in self._parameters.items()}
        settings = {**self._attributes, **attributes}

        def loss() -> float:
            return float((self._outputs(x, {**parameters, **settings}) * dy).sum())

        whole = self._outputs(x, {**parameters, **settings})
        for r in range(rows):
            alone = self._outputs(x[r:r + 1], {**parameters, **settings})
            _compare(f"y of row {r} alone", alone, whole[r:r + 1], 1e-12)
        gradients = self._gradients(x, dy, {**parameters, **settings})
        for name, values, found in zip(("x", *parameters), (x, *parameters.values()), gradients):
            slopes = numpy.empty_like(values)
            for i in numpy.ndindex(*values.shape):
                kept, step = values[i], 1e-5
                values[i] = kept + step
                above = loss()
                values[i] = kept - step
                slopes[i] = (above - loss()) / (2 * step)
                values[i] = kept
            _compare(f"the gradient of {name}", found, slopes, 1e-6)

    def _hash(self) -> str:
        """Returns a version made of the code of the norm, or "" if the code uses what cannot be compared."""
        import hashlib
        try:
            text = repr((_identify(self._forward, []), _identify(self._backward, []), self._parameters,
                         self._attributes))
        except _Unidentified:
            return ""
        return "python " + hashlib.sha256(text.encode()).hexdigest()[:16]

    def _require_gradient(self) -> None:
        if self._backward is None:
            raise ValueError(f"the norm {self.id} has no gradient: decorate a function with @NAME.backward")

    def _require(self, function: Callable[..., Any], *first: str) -> None:
        names = dict.fromkeys((*self._parameters, *self._attributes))
        try:
            inspect.signature(function).bind(*first, **names)
        except TypeError as error:
            raise TypeError(f"{getattr(function, '__name__', 'the function')} of norm {self.id} must take "
                            f"({', '.join((*first, *names))}): {error}") from None

    def _outputs(self, x: Array, named: Mapping[str, object]) -> Array:
        """Returns y [rows, dim] of x [rows, dim]."""
        return _shaped(self._forward(x, **named), x.shape, f"y of norm {self.id}")

    def _gradients(self, x: Array, dy: Array, named: Mapping[str, object]) -> list[Array]:
        """Returns dx [rows, dim], and the gradient [dim] of each parameter."""
        returned = self._backward(x, dy, **named)
        returned = returned if isinstance(returned, (tuple, list)) else (returned,)
        names = ("x", *self._parameters)
        if len(returned) != len(names):
            raise ValueError(f"backward of norm {self.id} returned {len(returned)} gradients instead of {len(names)}: "
                             f"those of {', '.join(names)}")
        return [_shaped(found, x.shape if name == "x" else x.shape[1:], f"the gradient of {name} of norm {self.id}")
                for name, found in zip(names, returned)]

    # --- The functions of the table, which may run on any thread ---

    def _create(self, _host: Any, dim: int, values: Any, out: Any, err: int, err_cap: int) -> int:
        tensors = (abi.TensorDef * len(self._parameters))(*(
            abi.TensorDef(name=name.encode(), doc=b"", ndim=1, dims=(dim, 0, 0, 0), init=abi.INIT_CONST, init_a=value,
                          lr_scale=1) for name, value in self._parameters.items()))
        handle = next(self._handles)
        self._instances[handle] = _Instance({name: values[i].f for i, name in enumerate(self._attributes)}, tensors)
        out[0] = handle
        return 0

    def _destroy(self, handle: int) -> None:
        del self._instances[handle]

    def _layout(self, handle: int, out: Any) -> int:
        layout, tensors = out.contents, self._instances[handle].tensors
        layout.tensor_stride, layout.n_params = ctypes.sizeof(abi.TensorDef), len(tensors)
        layout.params, layout.backward_needs = tensors, abi.BACKWARD_READS_X
        return 0

    def _run_forward(self, handle: int, call: Any, r0: int, r1: int) -> int:
        return self._run(self._write_outputs, handle, call.contents, r0, r1)

    def _run_backward(self, handle: int, call: Any, r0: int, r1: int) -> int:
        return self._run(self._write_gradients, handle, call.contents, r0, r1)

    def _run(self, body: Callable[..., None], handle: int, call: abi.NormCall, r0: int, r1: int) -> int:
        """Runs the body of forward or backward. An exception fails the call with its text."""
        try:
            if r0 < r1:
                body(call, self._named(handle, call), r0, r1)
            return 0
        except BaseException as raised:  # nothing may unwind through C
            if not isinstance(raised, Exception) and thread.raised is None:
                thread.raised = raised  # KeyboardInterrupt, if this is the thread of the call
            logging.getLogger("plumb").error("an exception in norm %s", self.id, exc_info=True)
            import traceback
            frame = traceback.extract_tb(raised.__traceback__)[-1]
            text = f"{type(raised).__name__}: {raised} ({frame.filename}:{frame.lineno})".encode()
            if call.err_cap > 0:
                text = text[:call.err_cap - 1] + b"\0"
                ctypes.memmove(call.err, text, len(text))
            return int(Code.INTERNAL)

    def _named(self, handle: int, call: abi.NormCall) -> dict[str, object]:
        """Returns the arguments of forward and backward besides rows: parameters [dim], and attributes."""
        named: dict[str, object] = {name: _array(call.params[i], (call.dim,), 0, call.dtype)
                                    for i, name in enumerate(self._parameters)}
        return {**named, **self._instances[handle].attributes}

    def _write_outputs(self, call: abi.NormCall, named: dict[str, object], r0: int, r1: int) -> None:
        shape = (r1 - r0, call.dim)
        y = self._outputs(_array(call.x + r0 * call.x_pitch, shape, call.x_pitch, call.dtype), named)
        _array(call.y + r0 * call.y_pitch, shape, call.y_pitch, call.dtype, False)[...] = y

    def _write_gradients(self, call: abi.NormCall, named: dict[str, object], r0: int, r1: int) -> None:
        shape = (r1 - r0, call.dim)
        found = self._gradients(_array(call.x + r0 * call.x_pitch, shape, call.x_pitch, call.dtype),
                                _array(call.dy + r0 * call.dy_pitch, shape, call.dy_pitch, call.dtype), named)
        dx = _array(call.dx + r0 * call.dx_pitch, shape, call.dx_pitch, call.dtype, False)
        if call.flags & abi.CALL_DX_ACCUMULATE:
            dx += found[0].astype(dx.dtype)
        else:
            dx[...] = found[0]
        for i, gradient in enumerate(found[1:]):
            total = _array(call.dparams[i], (call.dim,), 0, call.dtype, False)
            total += gradient.astype(total.dtype)


def norm(id: str, *, parameters: Mapping[str, float] = {}, attributes: Mapping[str, float] = {},
         version: Optional[str] = None) -> Callable[[Callable[..., Any]], Norm]:
    """Makes a norm of a function, as a decorator: forward(x, **parameters, **attributes) returns y [rows, dim] of x
    [rows, dim]. Each row is normalized on its own. `parameters` are trained vectors [dim] with their initial values,
    `attributes` numbers that a model may set, with their defaults. Arrays are numpy's, of float32 or float64; results
    may be anything that numpy.asarray converts, such as tensors of torch. `id` begins with a reversed domain:

        @plumb.norm("org.example.softsign", parameters={"gain": 1.0})
        def softsign(x, gain):
            return gain * x / (1 + abs(x))

        @softsign.backward
        def _(x, dy, gain):
            s = 1 / (1 + abs(x))
            return dy * gain * s * s, (dy * x * s).sum(axis=0)

        softsign.check()
        runtime.register_plugin(softsign)

    Runs with a norm are reused if its `version` is the same: by default a hash of the code of forward, backward and
    the functions and constants that they use. It cannot be computed for code that uses other objects or modules
    without a version; runs with such a norm are never reused unless you give a version and change it with the norm.

    An exception in a norm fails the step or the session's call with plumb.Error, and its traceback is logged."""
    return lambda forward: Norm(forward, id, parameters, attributes, version)


class _Unidentified(Exception):
    """Raised for an object of which changes cannot be seen."""


def _identify(value: object, seen: list[object]) -> object:
    """Returns a value with an equal repr for equal code and constants."""
    if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, (tuple, list)):
        return [_identify(item, seen) for item in value]
    if isinstance(value, frozenset):
        return sorted(repr(_identify(item, seen)) for item in value)
    if isinstance(value, types.CodeType):
        return (value.co_code, value.co_names, value.co_varnames, [_identify(item, seen) for item in value.co_consts])
    if isinstance(value, types.BuiltinFunctionType) or (isinstance(value, type) and value.__module__ == "builtins"):
        return value.__qualname__
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] in getattr(sys, "stdlib_module_names", ()):
            return (value.__name__, sys.version)
        version = getattr(sys.modules.get(value.__name__.partition(".")[0]), "__version__", None)
        if isinstance(version, str):
            return (value.__name__, version)
    if isinstance(value, types.FunctionType):
        if value in seen:
            return seen.index(value)
        seen.append(value)
        used = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_identify(item, seen) for item in (
            value.__code__, value.__defaults__, sorted((value.__kwdefaults__ or {}).items()), sorted(used.items(),
            key=lambda item: item[0]), cells)]
    raise _Unidentified(repr(value))


def _names(code: types.CodeType) -> set[str]:
    """Returns the names that code and the functions in it may read from their module."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _array(address: int, shape: tuple[int, ...], pitch: int, dtype: int, is_read_only: bool = True) -> Array:
    import numpy
    size = 4 if dtype == abi.DTYPE_F32 else 8
    return numpy.asarray(_Memory(address, shape, (pitch, size)[-len(shape):], dtype, is_read_only))


def _shaped(found: object, shape: tuple[int, ...], name: str) -> Array:
    import numpy
    array = numpy.asarray(found)
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {list(array.shape)} instead of {list(shape)}")
    return array


def _compare(name: str, found: Array, expected: Array, tolerance: float) -> None:
    import numpy
    wrong = numpy.argwhere(~(abs(found - expected) <= tolerance * (1 + abs(expected))))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise ValueError(f"{name} is {found[at]:.9g} at {list(at)} instead of {expected[at]:.9g}")
