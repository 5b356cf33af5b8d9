# SPDX-License-Identifier: Apache-2.0
"""Conversion of arguments for C: texts, integers that ctypes would silently truncate, token ids of any kind."""
from __future__ import annotations

import array
import collections.abc
import numbers
import operator
from collections.abc import Iterable
from ctypes import byref, c_char, c_int32
from typing import Any, Optional, SupportsIndex, TypeVar, Union, cast

# Token ids: one integer, or integers in any nesting: lists, arrays, buffers, numpy arrays, [tokens] or [rows, tokens].
Ids = Union[SupportsIndex, Iterable[object]]
Bytes = Union[str, bytes, bytearray]
T = TypeVar("T")


def instance(value: object, kind: type[T], name: str) -> T:
    """Returns `value`. Raises TypeError if it is not a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def integer(value: object, name: str, least: int = -2**63, most: int = 2**63 - 1) -> int:
    """Returns an integer for C. Raises TypeError, or OverflowError outside of least .. most."""
    try:
        found = operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not least <= found <= most:
        raise OverflowError(f"{name}: {found} is not in {least} .. {most}")
    return found


def int32(value: object, name: str) -> int:
    """Does the same for an int32_t."""
    return integer(value, name, -2**31, 2**31 - 1)


def choice(value: str, name: str, choices: tuple[str, ...]) -> int:
    """Returns the index of `value` in `choices`. Raises ValueError with the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return choices.index(value)


def utf8(text: Bytes, name: str = "text") -> bytes:
    """Returns a text as bytes, for an argument with a length."""
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, (bytes, bytearray)):
        return bytes(text)
    raise TypeError(f"{name} must be str or bytes, not {type(text).__name__}")


def c_string(text: Bytes, name: str) -> bytes:
    """Returns a text without zeros, for an argument that ends with 0."""
    encoded = utf8(text, name)
    if b"\0" in encoded:
        raise ValueError(f"{name} holds a null character")
    return encoded


_INTEGERS = {1: "bB", 2: "hH", 4: "iI", 8: "qQ"}  # signed and unsigned, by size


def tokens(ids: Ids, name: str = "ids") -> tuple[Any, int, object]:
    """Returns token ids as (pointer, count, object to keep alive), in row-major order. A writable buffer of int32 is
    not copied."""
    # The two usual kinds first, without the ctypes array of the others, because a step of a small model is short.
    if type(ids) is list:
        try:
            own = array.array("i", ids)
        except (TypeError, OverflowError):
            pass  # nested, or an error that row_major() describes
        else:
            return own.buffer_info()[0], len(own), own
    else:
        view = _int32_view(ids)
        if view is not None and view.nbytes:
            return byref(c_char.from_buffer(view)), view.nbytes // 4, view
    is_one = type(ids) is not list and isinstance(ids, numbers.Integral)  # the second is slow
    kept, _ = row_major((ids,) if is_one else ids, name)
    count = len(kept)
    return (c_int32 * count).from_buffer(kept), count, kept


def _int32_view(ids: Ids) -> Optional[memoryview]:
    """Returns a view of a writable buffer of int32 in row-major order; None for anything else."""
    try:
        view = memoryview(cast(Any, ids))
    except TypeError:
        return None
    return view if view.format in ("i", "<i") and not view.readonly and view.c_contiguous else None


def row_major(ids: Ids, name: str) -> tuple[Any, tuple[int, ...]]:
    """Returns token ids as (a writable buffer of int32, their shape)."""
    if type(ids) is list:
        return _of_rows(ids, name)
    if isinstance(ids, str):
        raise TypeError(f"{name} must be token ids, not str: Tokenizer.encode gives them")
    try:
        view = memoryview(cast(Any, ids))
    except TypeError:
        if not isinstance(ids, collections.abc.Iterable):
            raise TypeError(f"{name} must be token ids, not {type(ids).__name__}") from None
        return _of_rows(list(ids), name)
    if _int32_view(view) is not None:
        return view.cast("B").cast("i"), view.shape or ()
    kind = view.format.lstrip("@=<>!")
    if kind not in tuple("bBhHiIlLqQnN"):
        raise TypeError(f"{name} must be integers, not of format {view.format!r}")
    found: array.array[int] = array.array(_INTEGERS[view.itemsize][kind.isupper()], view.tobytes())  # in C order
    if view.format[0] in ">!":
        found.byteswap()
    return _int32s(found.tolist(), name), view.shape or ()


def _of_rows(rows: list[Any], name: str) -> tuple[array.array[int], tuple[int, ...]]:
    """Does the same as row_major, for a list of integers or of such lists."""
    try:
        return _int32s(rows, name), (len(rows),)
    except TypeError:
        pass
    nested = [isinstance(row, collections.abc.Iterable) for row in rows]
    if not any(nested):
        wrong = next(i for i, row in enumerate(rows) if not hasattr(row, "__index__"))
        raise TypeError(f"{name}[{wrong}] must be a token id, an integer, not {type(rows[wrong]).__name__}")
    kept: array.array[int] = array.array("i")
    first: tuple[int, ...] = ()
    for i, row in enumerate(rows):
        found, shape = row_major(row, f"{name}[{i}]") if nested[i] else (array.array("i"), ())
        first = shape if i == 0 else first
        if shape != first:
            raise ValueError(f"{name} is ragged: {name}[0] has the shape {first}, {name}[{i}] {shape}")
        kept.extend(found)
    return kept, (len(rows), *first)


def _int32s(ids: list[int], name: str) -> array.array[int]:
    try:
        return array.array("i", ids)
    except OverflowError:
        wrong = next(i for i in ids if not -2**31 <= i < 2**31)
        raise OverflowError(f"{name}: {wrong} is no token id, it does not fit 32 bits") from None


def check_rows(ids: Ids, name: str, length: int) -> None:
    """Raises ValueError if ids of several dimensions are not rows of `length` tokens."""
    inner: Any = ids
    while isinstance(inner, (list, tuple)) and inner and not hasattr(inner[0], "__index__"):
        inner = inner[0]
    shape = tuple(getattr(inner, "shape", None) or (len(inner),) if hasattr(inner, "__len__") else ())
    if shape and (inner is not ids or len(shape) > 1) and shape[-1] != length:
        raise ValueError(f"{name} has rows of {shape[-1]} tokens, not of {length}; is it transposed?")


def pairs(inputs: Ids, targets: Ids, rows: int = 0, length: int = 0) -> tuple[Any, Any, int, object]:
    """Returns inputs and targets of equal number as (pointer, pointer, count, buffers to keep alive). Raises ValueError
    unless ids of several dimensions are rows of `length` tokens; 0: of a part in `rows` of all."""
    (of_inputs, n, kept), (of_targets, n_targets, kept_targets) = tokens(inputs, "inputs"), tokens(targets, "targets")
    if n != n_targets:
        raise ValueError(f"{n} inputs and {n_targets} targets")
    check_rows(inputs, "inputs", length or n // rows)
    check_rows(targets, "targets", length or n // rows)
    return of_inputs, of_targets, n, (kept, kept_targets)


_WEIGHTS = ("f32", "bf16", "int8")


def weights_format(kind: str) -> int:
    """Returns PLUMB_WEIGHTS_F32, ..."""
    return choice(kind, "weights", _WEIGHTS)
