# SPDX-License-Identifier: Apache-2.0
"""Recipes and trainers."""
from __future__ import annotations

import array
import collections.abc
import ctypes
import math
import os
import re
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_int32, c_void_p
from typing import Any, Callable, NamedTuple, Optional, SupportsIndex, Union

from . import _structs as structs
from ._arguments import Bytes, Ids, c_string, check_rows, choice, instance, integer, pairs, row_major, tokens
from ._calls import Interruptible, call, guarded, listed, rows, text, thread
from ._handles import Handle, Lease, Object, Use
from ._library import function
from .errors import Cancelled, Code, Error
from .model import Model, Path
from .probe import Probe, ProfileRow, callback_of, names_of, profile_rows
from .tensor import Tensor

Settings = Union[Mapping[str, object], Iterable[tuple[str, object]]]


def recipe_text(recipe: Bytes = "", settings: Settings = (), name: str = "recipe") -> str:
    """Returns a complete recipe, with every field whose default is not zero. `settings`: a dict, or pairs, of fields
    and values to set in it; `name` stands for the file in messages."""
    found = settings.items() if isinstance(settings, collections.abc.Mapping) else settings
    words = [c_string(str(word), "settings") for field, value in found for word in (field, value)]
    return text("recipe_text", c_string(recipe, "recipe"), c_string(name, "name"), (c_char_p * len(words))(*words),
                len(words) // 2).decode()


def named(batch: tuple[Ids, Ids]) -> tuple[tuple[str, Ids], tuple[str, Ids]]:
    """Returns the parts of a batch with their names, which messages need."""
    parts = tuple(batch)
    if len(parts) != 2:
        raise ValueError(f"a batch must be a pair (inputs, targets), not of {len(parts)} parts; a target of -1 does not count")
    return ("inputs", parts[0]), ("targets", parts[1])


class StepInfo(NamedTuple):
    """Results of a step: its number (from 1), number of targets, mean loss over them before the update in nats, L2 norm
    of all gradients before clipping, learning rate and time."""
    step: int
    tokens: int
    loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float

    @classmethod
    def _of(cls, info: structs.StepInfo) -> StepInfo:
        return cls(info.step, info.tokens, info.loss, info.gradient_norm, info.learning_rate, info.seconds)


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
    def _of(cls, memory: structs.TrainerMemory) -> TrainerMemory:
        return cls(*(getattr(memory, field) for field in cls._fields))


class StateTensor(NamedTuple):
    """A tensor of the state that a trainer holds between steps."""
    kind: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    shape: tuple[int, ...]


class LossRows(NamedTuple):
    """Rows of a micro-batch whose loss a function computes: memoryviews of their inputs and targets [rows, seq], of
    logits [rows, seq, vocab_size] and, to write to, of the loss's derivative by each of them, which is 0. They are valid
    until the function returns; numpy.asarray makes no copy."""
    step: int
    micro_batch: int
    first_row: int
    inputs: memoryview[int]
    targets: memoryview[int]
    logits: memoryview[float]
    gradient: memoryview[float]


LossFunction = Callable[[LossRows], float]
_STATES = ("model", "optimizer")


def _loss_callback(loss: Optional[LossFunction], model: Handle) -> Any:
    """Returns the C callback for loss(LossRows)."""
    if loss is None:
        return structs.LossFn()
    function = loss

    def compute(given: Any) -> bool:
        ids, logits = (given.rows, given.seq), (given.rows, given.seq, given.vocab_size)
        leases = []

        def view(address: int, shape: tuple[int, ...], element: Any, code: Any) -> Any:
            memory: Any = (element * math.prod(shape)).from_address(address)
            memory.lease = Lease(model)
            leases.append(weakref.ref(memory.lease))
            return memoryview(memory).cast("B").cast(code, shape)

        result = function(LossRows(
            given.step, given.micro_batch, given.first_row, view(given.inputs, ids, c_int32, "i").toreadonly(),
            view(given.targets, ids, c_int32, "i").toreadonly(),
            view(given.logits, logits, c_float, "f").toreadonly(), view(given.gradient, logits, c_float, "f")))
        if any(lease() is not None for lease in leases):
            raise RuntimeError("a view of the tensors of a loss outlives the function: copy it")
        if result is not False:
            given.loss = result
        return result is not False

    def call_it(_user: Any, given: Any) -> int:
        return guarded(compute, given.contents)

    return structs.LossFn(call_it)


class Trainer(Object):
    """Trains a model with a recipe (plumb.v1.Train, text format). `seq`: max tokens of a sequence (0: the context's
    length). For one thread at a time; while it steps, no session of its model may run on another thread."""
    _kind = "trainer"

    def __init__(self, model: Model, recipe: Bytes = "", *, seq: int = 0, draw_weights: bool = False,
                 reserve: int = 0, loss: Optional[LossFunction] = None) -> None:
        """Creates a trainer. `draw_weights`: draw the weights from the recipe's seed, even if the model has some.
        `reserve`: bytes that must fit into memory next to the trainer. loss(LossRows) returns the loss of rows and
        writes its gradient, or returns False to end the step; a step's loss is the sum over its calls. Without it, it is
        the mean cross-entropy."""
        encoded, made = c_string(recipe, "recipe"), c_void_p()
        options = structs.TrainerOptions(recipe=encoded, seq=seq,
                                         draw_weights=bool(draw_weights), reserve=reserve)
        with instance(model, Model, "model")._use() as handle:
            self._loss = options.loss = _loss_callback(loss, handle)
            model._moves |= re.search(rb"\bdtype\s*:\s*BF16\b", encoded) is not None
            if model._moves:
                model._refuse_views("training weights that are mapped, or in bf16,")
            call("trainer_create", handle, byref(options), byref(made))
            self._take(made, keep=handle)
        self._model, self._seq = model, seq or model.info.context_length
        self._info = structs.StepInfo()
        self._tells: Optional[int] = None  # thread that runs on_step

    @staticmethod
    def plan(model: Model, recipe: Bytes = "", *, seq: int = 0, ranks: int = 0,
             loss: Optional[LossFunction] = None) -> TrainerMemory:
        """Computes the TrainerMemory of a trainer, without allocating it; with several `ranks` that of the one that
        needs most."""
        encoded, memory = c_string(recipe, "recipe"), structs.TrainerMemory()
        options = structs.TrainerOptions(recipe=encoded, seq=seq, ranks=ranks)
        with instance(model, Model, "model")._use() as handle:
            options.loss = _loss_callback(loss, handle)
            call("trainer_plan", handle, byref(options), byref(memory))
        return TrainerMemory._of(memory)

    @property
    def memory(self) -> TrainerMemory:
        """The TrainerMemory of this trainer."""
        memory = structs.TrainerMemory()
        call("trainer_get_memory", self._live(), byref(memory))
        return TrainerMemory._of(memory)

    def _look(self) -> Use:
        """Returns the handle for a call that changes nothing: like _use(), but also in on_step."""
        is_inside = self._tells is not None and self._tells == threading.get_ident()
        return Use(self._live(), None if is_inside else self._lock, "Trainer")

    def _figures(self) -> str:
        return f": {self.steps} steps of {self.step_tokens} tokens"

    @property
    def step_tokens(self) -> int:
        """The number of ids in a step: gradient_accumulation_steps x batch_size x seq."""
        return int(function("trainer_step_tokens")(self._live()))

    @property
    def steps(self) -> int:
        """The number of completed steps; set it to continue from another number."""
        return int(function("trainer_steps")(self._live()))

    @steps.setter
    def steps(self, steps: int) -> None:
        with self._use() as handle:
            call("trainer_set_steps", handle, integer(steps, "steps"))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(function("trainer_learning_rate")(self._live()))

    def scale_learning_rate(self, scale: float) -> None:
        """Multiplies the scheduled learning rate by `scale` from now on."""
        with self._use() as handle:
            call("trainer_scale_learning_rate", handle, scale)

    def check(self) -> None:
        """Raises Error with Code.ABORTED if a weight, a moment or a norm state is not finite."""
        with self._look() as handle:
            call("trainer_check", handle)

    def step(self, inputs: Ids, targets: Ids) -> StepInfo:
        """Does one step on ids [micro-batch, row, position], in any nesting; the target of each is the next token, or
        -1 for one that does not count: numpy.where(mask, targets, -1)."""
        of_inputs, of_targets, n, _kept = pairs(inputs, targets, length=self._seq)
        with self._use() as handle:
            call("trainer_step", handle, of_inputs, of_targets, n, byref(self._info))
            return StepInfo._of(self._info)

    def step_micro_batches(self, micro_batches: Iterable[tuple[Ids, Ids]]) -> StepInfo:
        """Does one step on gradient_accumulation_steps pairs (inputs, targets) [batch_size, tokens], which may be
        shorter than seq and may differ in length."""
        given = [tuple(row_major(ids, name) for name, ids in named(pair)) for pair in micro_batches]

        def put(i: int, inputs: Any, targets: Any, seq: Any) -> None:
            (ids, shape), (of_targets, shape_of_targets) = given[i]
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

        def fill(_user: Any, i: int, inputs: Any, targets: Any, seq: Any) -> int:
            return guarded(put, i, inputs, targets, seq)

        longest = self.step_tokens // max(1, len(given))
        with self._use() as handle:
            call("trainer_step_with_callback", handle, structs.MicroBatchFn(fill), None, byref(self._info))
            return StepInfo._of(self._info)

    def run(self, batches: Iterable[tuple[Ids, Ids]], on_step: Optional[Callable[[StepInfo], object]] = None) -> None:
        """Does steps until the recipe's max_steps or the end of `batches`, pairs (inputs, targets) as in step().
        on_step(StepInfo) is called after each, and may save() and read gradients and weights. An exception in it, or
        Ctrl-C, ends the run after a whole step. Raises Cancelled if on_step returns False or cancel() is called."""
        iterator, ended = iter(batches), False
        with self._use() as handle, Interruptible() as interrupt:
            def fill(inputs: Any, targets: Any, n: int) -> None:
                for into, (name, ids) in zip((inputs, targets), named(next(iterator))):
                    source, count, _kept = tokens(ids, name)
                    if count != n:
                        raise ValueError(f"{name}: a step has {n} ids, not {count}")
                    check_rows(ids, name, self._seq)
                    ctypes.memmove(into, source, 4 * n)

            def batch(_user: Any, _step: int, inputs: Any, targets: Any, n: int) -> int:
                nonlocal ended
                if interrupt.stops():
                    return 1
                try:
                    return guarded(fill, inputs, targets, n)
                finally:
                    if isinstance(thread.raised, StopIteration):
                        thread.raised, ended = None, True

            def told(_user: Any, info: Any) -> int:
                if interrupt.stops():
                    return 1
                self._tells = threading.get_ident()
                try:
                    return guarded(on_step or bool, StepInfo._of(info.contents))
                finally:
                    self._tells = None

            try:
                call("trainer_run", handle, structs.BatchFn(batch),
                     structs.StepFn(told) if on_step else structs.StepFn(), None)
            except Cancelled:
                if not ended:
                    raise

    def cancel(self) -> None:
        """Ends run() before its next step. Any thread."""
        function("trainer_cancel")(self._live())

    def save(self, path: Path) -> None:
        """Saves weights and optimizer state as a safetensors file, which is replaced atomically. Also in on_step."""
        with self._look() as handle:
            call("trainer_save", handle, os.fsencode(path))

    def load(self, path: Path) -> None:
        """Loads a file of save() into a trainer of the same model, which then continues to the same bits."""
        with self._use() as handle:
            call("trainer_load", handle, os.fsencode(path))

    def probe(self, every: int, probe: Optional[Callable[[Probe], object]], points: Sequence[str] = ()) -> None:
        """Calls probe(Probe) for tensors in step 1 and every `every`-th step from now on; 0: never. `points` are names
        ("grad.*", "logits"); none: streams, norms, logits and parameters. Returning False ends step() or run()
        with Cancelled, after the step. With None for `probe`, get_probes() returns the statistics."""
        of_model = self._model._live()
        tell, names = ((structs.ProbeFn(), names_of(points)) if probe is None else
                       callback_of(probe, points, of_model))
        with self._use() as handle:
            call("trainer_probe", handle, integer(every, "every"), names, len(points), tell, None)
            handle.keep = (of_model, tell)

    def get_probes(self) -> list[Probe]:
        """Returns the statistics of the last step, over all its micro-batches, without tensors; [] if it was not
        probed."""
        with self._look() as handle:
            return [Probe._of(seen, None) for seen in listed("trainer_probes", handle, structs.Probe)]

    def profile(self, on: bool = True) -> None:
        """Starts a new profile of the following steps, or ends it."""
        with self._use() as handle:
            call("trainer_profile", handle, bool(on))

    def profile_rows(self) -> list[ProfileRow]:
        """Returns the profile: the total, ops, stages, the rest."""
        with self._use() as handle:
            return profile_rows("trainer", handle)

    def state(self, kind: str) -> list[StateTensor]:
        """Returns the tensors of the state between steps: "model" (weights, norms' buffers) or "optimizer"."""
        number = choice(kind, "kind", _STATES)
        with self._look() as handle:
            return [StateTensor(kind, i, found.name.decode(), tuple(found.shape[:found.rank]))
                    for i, found in enumerate(rows("trainer_state", function("trainer_state_count")(handle, number),
                                                   handle, structs.Tensor, number))]

    def read_state(self, tensor: StateTensor) -> memoryview[float]:
        """Returns a copy of a StateTensor, with its shape."""
        count = math.prod(tensor.shape)
        copy = (c_float * count)()
        with self._look() as handle:
            call("trainer_read_state", handle, _STATES.index(tensor.kind), tensor.index, 0, count, copy)
        return memoryview(copy).cast("B").cast("f", tensor.shape)

    def write_state(self, tensor: StateTensor, values: Any) -> None:
        """Sets a StateTensor from a buffer with as many floats. Writing back all of a state, and `steps`, continues to
        the same bits."""
        view = memoryview(values)
        if view.format != "f" or view.nbytes != 4 * math.prod(tensor.shape):
            raise ValueError(f"{tensor.name} is float32 {list(tensor.shape)}, not {view.format!r} "
                             f"{list(view.shape or ())}")
        floats: array.array[float] = array.array("f", view.tobytes())
        with self._use() as handle:
            call("trainer_write_state", handle, _STATES.index(tensor.kind), tensor.index, 0, len(floats),
                 (c_float * len(floats)).from_buffer(floats))

    def gradient(self, i: Union[str, SupportsIndex]) -> Tensor:
        """Returns the gradient of the last step for the parameter with a name, or the i-th, of the parameter's shape,
        valid until the next step. Also in on_step. A parameter that the recipe freezes has none, which is an Error."""
        with self._look() as handle:
            return self._model._tensor("trainer_gradient", handle, i)

    def gradients(self) -> dict[str, Tensor]:
        """Returns the gradients of the last step for all parameters that the recipe does not freeze, by name. Raises
        Error before the first step."""
        found: list[Tensor] = []
        for i in range(len(self._model)):
            try:
                found.append(self.gradient(i))
            except Error as error:
                is_last = i + 1 == len(self._model)
                if error.code != Code.FAILED_PRECONDITION or (is_last and not found):
                    raise
        return {tensor.name: tensor for tensor in found}
