# SPDX-License-Identifier: Apache-2.0
"""Evaluators: loss, logits and gradients of whole sequences."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_double, c_int64, c_void_p
from typing import Callable, Optional, SupportsIndex, Union

from . import _structs as structs
from ._arguments import Ids, check_rows, instance, pairs, tokens, weights_format
from ._calls import call
from ._handles import Object
from ._library import function
from .model import Model
from .probe import Probe, callback_of
from .tensor import Tensor, floats


class Evaluator(Object):
    """Computes the loss of `rows` sequences of at most `seq` tokens (0: the context's length), and their `logits` and
    the `gradients` of the loss if requested. Changes nothing. For one thread at a time."""
    _kind = "evaluator"

    def __init__(self, model: Model, rows: int = 1, *, seq: int = 0, weights: str = "f32", logits: bool = False,
                 gradients: bool = False) -> None:
        options, made = structs.EvaluatorOptions(rows=rows, seq=seq, weights=weights_format(weights),
                                                 logits=bool(logits), gradients=bool(gradients)), c_void_p()
        self._model = instance(model, Model, "model")
        self._rows, self._weights, self._wants_logits = options.rows or 1, weights, bool(logits)
        self._vocab_size = model.info.vocab_size
        of_model = model._live()
        call("evaluator_create", of_model, byref(options), byref(made))
        self._take(made, keep=of_model)

    def _figures(self) -> str:
        return f": {self._rows} rows, {self._weights}{', logits' if self._wants_logits else ''}"

    @staticmethod
    def plan(model: Model, rows: int = 1, *, seq: int = 0, weights: str = "f32", logits: bool = False,
             gradients: bool = False) -> int:
        """Computes the memory of an evaluator next to the weights, in bytes, without allocating it."""
        options, taken = structs.EvaluatorOptions(rows=rows, seq=seq, weights=weights_format(weights),
                                                  logits=bool(logits), gradients=bool(gradients)), c_int64()
        with instance(model, Model, "model")._use() as handle:
            call("evaluator_plan", handle, byref(options), byref(taken))
        return taken.value

    def loss(self, inputs: Ids, targets: Ids) -> float:
        """Returns the mean loss over the targets of inputs [rows, n / rows], in nats; -1: no target."""
        of_inputs, of_targets, n, _kept = pairs(inputs, targets, rows=self._rows)
        loss = c_double()
        with self._use() as handle:
            call("evaluator_run", handle, of_inputs, of_targets, n, byref(loss))
        return loss.value

    def losses(self, inputs: Ids, targets: Ids) -> memoryview[float]:
        """Returns the loss of each target [rows, n / rows] in nats, 0 where there is none, valid until the next call. The
        exponential of their sum, divided by the number of targets, is the perplexity."""
        of_inputs, of_targets, n, _kept = pairs(inputs, targets, rows=self._rows)
        with self._use() as handle:
            call("evaluator_run", handle, of_inputs, of_targets, n, None)
            losses = function("evaluator_losses")(handle)
            return floats(ctypes.addressof(losses.contents), (self._rows, n // self._rows), handle)[0]

    def cancel(self) -> None:
        """Ends a call before its next op, with Cancelled. Any thread."""
        function("evaluator_cancel")(self._live())

    def logits(self, inputs: Ids) -> memoryview[float]:
        """Returns logits [rows, n / rows, vocab_size], valid until the next call, without a copy (numpy.asarray makes
        none either)."""
        if not self._wants_logits:
            raise ValueError("the evaluator was made without logits=True")
        pointer, n, _kept = tokens(inputs, "inputs")
        check_rows(inputs, "inputs", n // self._rows)
        with self._use() as handle:
            call("evaluator_run", handle, pointer, None, n, None)
            logits = function("evaluator_logits")(handle)
            shape = (self._rows, n // self._rows, self._vocab_size)
            return floats(ctypes.addressof(logits.contents), shape, handle)[0]

    def gradient(self, i: Union[str, SupportsIndex]) -> Tensor:
        """Returns the gradient of the last loss() for the parameter with a name, or the i-th, of its shape, valid until
        the next call."""
        with self._use() as handle:
            return self._model._tensor("evaluator_gradient", handle, i)

    def gradients(self) -> dict[str, Tensor]:
        """Returns the gradients of the last loss() for all parameters, by name."""
        return {tensor.name: tensor for tensor in map(self.gradient, range(len(self._model)))}

    def probe(self, probe: Optional[Callable[[Probe], object]], points: Sequence[str] = ()) -> None:
        """Calls probe(Probe) for tensors in each further call, like Trainer.probe; None turns it off. Without
        `gradients` there are activations only, such as "layers.3.residual"."""
        of_model = self._model._live()
        tell, names = (structs.ProbeFn(), None) if probe is None else callback_of(probe, points, of_model)
        with self._use() as handle:
            call("evaluator_probe", handle, names, len(names or ()), tell, None)
            handle.keep = (of_model, tell)
