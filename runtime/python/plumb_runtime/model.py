# SPDX-License-Identifier: Apache-2.0
"""Descriptions of models, and models with their weights."""
from __future__ import annotations

import html
import json
import math
import operator
import os
import weakref
from ctypes import byref, c_float, c_void_p
from typing import Any, NamedTuple, Optional, SupportsIndex, TypeVar, Union

from . import _structs as structs
from ._arguments import Bytes, c_string, choice, instance, integer, weights_format
from ._calls import call, text
from ._handles import Handle, Lease, Object
from ._library import function
from .runtime import Runtime
from .tensor import Tensor

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
S = TypeVar("S", bound="Spec")
M = TypeVar("M", bound="Model")


class Spec(Object):
    """A model's description (plumb.v1.Model, text format). `name` stands for the file in messages. str() returns its
    text, which a notebook shows."""
    _kind = "spec"

    def __init__(self, text: Bytes, name: str = "model") -> None:
        made = c_void_p()
        call("spec_from_text", c_string(text, "text"), c_string(name, "name"), byref(made))
        self._take(made)

    @classmethod
    def from_file(cls: type[S], path: Path) -> S:
        """Reads a description from a file."""
        spec, made = cls.__new__(cls), c_void_p()
        call("spec_from_file", os.fsencode(path), byref(made))
        spec._take(made)
        return spec

    def __setitem__(self, field: str, value: object) -> None:
        """Sets a field: spec["n_layer"] = 8; spec["norm[0].attr[0].number"] = 1e-6."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        with self._use() as handle:
            call("spec_set", handle, c_string(field, "field"), c_string(text, "value"))

    def __str__(self) -> str:
        with self._use() as handle:
            return text("spec_text", handle).decode()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class ModelInfo(NamedTuple):
    """Dimensions and sizes. `bidirectional`: each token sees those after it. `token_types`: number of token types, 0
    for none."""
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
    def _of(cls, info: structs.ModelInfo) -> ModelInfo:
        values: dict[str, Any] = {field: getattr(info, field) for field in cls._fields}
        values["bidirectional"] = values["bidirectional"] != 0
        return cls(**values)


# In the order of PLUMB_EXPLAIN_GRAPH and so on.
_STAGES = ("graph", "gradients", "optimized", "memory plan", "executable", "prompt", "probes", "updates", "svg",
           "layer svg", "pytorch")


class Model(Object):
    """A model, with weights from a `seed`, from a safetensors file (`weights`, a path, or its content as bytes), or
    none yet. Methods that change weights need exclusive access; no session may run meanwhile."""
    _kind = "model"

    def __init__(self, runtime: Runtime, spec: Spec, *, seed: Optional[int] = None,
                 weights: Union[Path, bytearray, None] = None) -> None:
        made = c_void_p()
        with instance(runtime, Runtime, "runtime")._use() as of_runtime, instance(spec, Spec, "spec")._use() as of_spec:
            call("model_create", of_runtime, of_spec, byref(made))
            self._take(made, keep=of_runtime)
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._moves = False  # True if a trainer changes the layout of the weights
        if seed is not None:
            self.init(seed)
        if weights is not None:
            self.load(weights)

    @classmethod
    def _adopt(cls: type[M], made: c_void_p, runtime: object) -> M:
        """Returns the model of a handle that the library has made with a runtime's handle."""
        model = cls.__new__(cls)
        model._take(made, keep=runtime)
        model._leases = weakref.WeakSet()
        model._moves = True  # the weights are mapped
        return model

    def _figures(self) -> str:
        info = self.info
        return f": {info.n_layer} layers, {info.n_head} heads, d_model {info.d_model}, {info.parameters} parameters"

    @property
    def info(self) -> ModelInfo:
        """The model's ModelInfo."""
        info = structs.ModelInfo()
        call("model_get_info", self._live(), byref(info))
        return ModelInfo._of(info)

    def describe(self) -> dict[str, Any]:
        """Returns the resolved model as a dict: equations, Jacobians, routes, tensors (fields: model.schema.json)."""
        with self._use() as handle:
            found: dict[str, Any] = json.loads(text("model_describe", handle))
        return found

    def explain(self, stage: str = "graph", batch: int = 1, seq: int = 0, recipe: Bytes = "",
                layer: Optional[int] = None) -> str:
        """Prints a stage of the compiler, for people: "graph", "gradients", "optimized", "memory plan" or "executable"
        of a training step, "prompt", "probes", "updates", "pytorch", the model as code for PyTorch, or "svg", the data
        flow of a layer of each kind or of `layer` (from 0)."""
        encoded, number = c_string(recipe, "recipe"), choice(stage, "stage", _STAGES)
        if layer is not None and stage == "svg":
            number += 1  # PLUMB_EXPLAIN_LAYER_SVG
        options = structs.ExplainOptions(stage=number, layer=layer or 0, batch=batch, seq=seq, recipe=encoded)
        with self._use() as handle:
            return text("model_explain", handle, byref(options)).decode()

    def export_pytorch(self, directory: Path, recipe: Bytes = "") -> None:
        """Writes model.py, the model as code that needs PyTorch only, and model.safetensors into a directory, which is
        created. The weight decay and rates of its parameter_groups() are those of `recipe`."""
        code, out = self.explain("pytorch", recipe=recipe), os.fsdecode(directory)
        os.makedirs(out, exist_ok=True)
        self.save(os.path.join(out, "model.safetensors"))
        with open(os.path.join(out, "model.py"), "w", encoding="utf-8") as file:
            file.write(code)

    def work(self, training: bool, tokens: int, weights: str = "f32", recipe: Bytes = "") -> tuple[float, int]:
        """Returns the min work of a pass over one sequence, as (flops, bytes of weights that a token reads): forward
        and backward (`training`) without what `recipe` freezes, or feeding a session."""
        work, encoded = structs.Work(), c_string(recipe, "recipe")
        with self._use() as handle:
            call("model_work", handle, 0 if training else 1, integer(tokens, "tokens"), weights_format(weights),
                 encoded, byref(work))
        return work.flops, work.weight_bytes

    def text(self) -> str:
        """Returns a self-contained description, which includes placements and imports."""
        with self._use() as handle:
            return text("model_text", handle).decode()

    def norms(self) -> dict[str, str]:
        """Returns the norms of the layers: {id: version}."""
        with self._use() as handle:
            found: dict[str, str] = json.loads(text("model_norms", handle))
        return found

    def probe_points(self) -> list[str]:
        """Returns the names that Trainer.probe and Evaluator.probe take."""
        with self._use() as handle:
            return text("model_probe_points", handle).decode().split()

    def init(self, seed: int) -> None:
        """Draws the weights from a seed, as `plumb train` does."""
        with self._use() as handle:
            call("model_init", handle, integer(seed, "seed", 0, 2**64 - 1))

    def load(self, weights: Union[Path, bytearray]) -> None:
        """Reads the weights from a safetensors file, or from the content of one (bytes)."""
        with self._use() as handle:
            if isinstance(weights, (bytes, bytearray)):
                call("model_load_memory", handle, bytes(weights), len(weights))
            else:
                call("model_load", handle, os.fsencode(weights), None)

    def load_partial(self, path: Path) -> list[str]:
        """Reads those weights of a safetensors file that the model has, and keeps the others. Returns the tensors that
        only one of them has: "missing: head.weight", "surplus: value.weight"."""
        with self._use() as handle:
            return text("model_load", handle, os.fsencode(path)).decode().splitlines()

    def map(self, path: Path) -> None:
        """Maps the weights: like load(path), but they stay in the file, which is read on demand and must not change."""
        with self._use() as handle:
            self._refuse_views("mapping weights")
            self._moves = True
            call("model_map", handle, os.fsencode(path))

    def _refuse_views(self, what: str) -> None:
        if self._leases:
            raise RuntimeError(f"{what} moves them, and a view of a tensor is still in use")

    def changed(self) -> None:
        """Makes sessions and evaluators use new weights. Call it after writing to tensors, before they run again."""
        function("model_changed")(self._live())

    def save(self, path: Path, tensors: str = "*") -> None:
        """Saves the weights as a safetensors file, which is replaced atomically. `tensors`: only those whose name
        matches, in which * is any text: "*.lora_*" saves an adapter alone, for load_partial()."""
        call("model_save", self._live(), os.fsencode(path), c_string(tensors, "tensors"))

    def merge(self) -> Model:
        """Returns a model without this one's adapter, whose updates are added to the weights."""
        made = c_void_p()
        with self._use() as handle:
            call("model_merge", handle, byref(made))
            merged = Model._adopt(made, handle.keep)
        merged._moves = False
        return merged

    def __len__(self) -> int:
        return int(function("model_tensor_count")(self._live()))

    def tensor(self, i: Union[str, SupportsIndex]) -> Tensor:
        """Returns the parameter with a name, or the i-th, which may be written to while nothing else uses the model.
        Raises KeyError for an unknown name."""
        return self._tensor("model_tensor", self._live(), i)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all parameters, by name."""
        return {tensor.name: tensor for tensor in map(self.tensor, range(len(self)))}

    def _index(self, name: str) -> int:
        i = int(function("model_find_tensor")(self._live(), c_string(name, "name")))
        if i < 0:
            names = ", ".join(tensor["name"] for tensor in self.describe()["tensors"])
            raise KeyError(f"no tensor {name!r}; tensors() has {names}")
        return i

    def read_tensor(self, i: Union[str, SupportsIndex]) -> memoryview[float]:
        """Returns a copy of the parameter with a name, or the i-th, as floats in its order, also of a matrix that was
        trained in bf16."""
        index = self._index(i) if isinstance(i, str) else operator.index(i)
        count = math.prod(self.describe()["tensors"][index]["shape"])
        copy = (c_float * count)()
        call("model_read_tensor", self._live(), index, 0, count, copy)
        return memoryview(copy).cast("B").cast("f")

    def _tensor(self, function: str, handle: Handle, i: Union[str, SupportsIndex]) -> Tensor:
        tensor = structs.Tensor()
        if isinstance(i, str):
            i = self._index(i)
        i = operator.index(i)
        if not 0 <= i < 2**63:
            raise IndexError(f"there is no tensor {i}")
        call(function, handle, i, byref(tensor))
        return Tensor(tensor, handle, self._leases)
