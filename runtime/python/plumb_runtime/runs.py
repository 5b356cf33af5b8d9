# SPDX-License-Identifier: Apache-2.0
"""Run directories: training as `plumb train` does it, and runs that were trained or imported."""
from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int64, c_void_p
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _structs as structs
from ._calls import Callbacks, Interruptible, call, functions_of, guarded
from ._files import (Data, Inputs, Path, Recipe, Settings, Source, data_file, file_path, input_directory, model_file,
                     recipe_file, settings_of, with_recipe)
from .errors import Cancelled, Code, Error
from .model import Model
from .progress import Progress, table
from .runtime import Runtime
from .session import Session
from .tokenizer import Tokenizer


class RunStep(NamedTuple):
    """A step of train(). `loss` and `val_loss` are means over targets, in nats; `val_loss` is None without a
    validation. `grad_norm` is that of all gradients, before clipping. `checkpoint` is a path or "". `incidents` are
    lines about loss spikes and skipped batches since the last step."""
    step: int
    max_steps: int
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int
    seconds: float
    val_loss: Optional[float]
    checkpoint: str
    incidents: tuple[str, ...]

    def scalars(self) -> dict[str, float]:
        """Returns what programs such as TensorBoard draw: train/loss, train/lr, train/grad_norm,
        train/tokens_per_second and, after a validation, val/loss."""
        scalars = {"train/loss": self.loss, "train/lr": self.learning_rate, "train/grad_norm": self.grad_norm,
                   "train/tokens_per_second": self.tokens / self.seconds if self.seconds > 0 else 0.0}
        return scalars if self.val_loss is None else {**scalars, "val/loss": self.val_loss}


class Run:
    """A run, trained or imported, or one of its checkpoints: its model with the newest weights, and its tokenizer. In a
    notebook it shows its last losses and its sizes.

    `path`: as given. `step`: number of completed steps, 0 for an import."""

    def __init__(self, path: Path, runtime: Optional[Runtime] = None, *, average: bool = False) -> None:
        self.path = os.fspath(path)
        self.runtime = runtime or Runtime()
        model, tokenizer, step = c_void_p(), c_void_p(), c_int64()
        try:
            with self.runtime._use() as handle:
                call("run_open", handle, os.fsencode(self.path), 1 if average else 0, byref(model), byref(tokenizer),
                     byref(step))
        except Error as error:
            # A run of a study that keeps no weights still has its losses.
            if error.code != Code.NOT_FOUND or not os.path.exists(os.path.join(self.path, "result.json")):
                raise
            self._opened: Union[tuple[Model, Tokenizer], Error] = error.with_traceback(None)
            self.step = int(json.loads(self._file("result.json"))["step"])
        else:
            self._opened = Model._adopt(model, self.runtime._live()), Tokenizer._adopt(tokenizer)
            self.step = step.value

    def _parts(self) -> tuple[Model, Tokenizer]:
        if isinstance(self._opened, Error):
            raise self._opened.with_traceback(None)
        return self._opened

    @property
    def model(self) -> Model:
        """The model with its weights. Raises Error if the run keeps none."""
        return self._parts()[0]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises Error if the run keeps no weights."""
        return self._parts()[1]

    def __repr__(self) -> str:
        has = "without weights" if isinstance(self._opened, Error) else repr(self.model)
        return f"<plumb.Run {self.path!r}, step {self.step}: {has}>"

    def _repr_html_(self) -> str:
        columns = self.metrics if os.path.exists(self._path("metrics.csv")) else {}
        rows: dict[str, object] = {"run": self.path, "step": self.step}
        for name in ("loss", "val_loss"):
            losses = [loss for loss in columns.get(name, ()) if loss is not None]
            rows.update({name: f"{losses[-1]:.4f}"} if losses else {})
        if not isinstance(self._opened, Error):
            rows.update(parameters=f"{self.model.info.parameters:,}", tokens=f"{self.tokenizer.vocab_size:,}")
        return table([], [[name, str(value)] for name, value in rows.items()])

    def _file(self, name: str) -> str:
        with open(self._path(name), encoding="utf-8") as file:
            return file.read()

    def _path(self, name: str) -> str:
        """Returns the path of a file of the run, which for a checkpoint is two directories above."""
        is_checkpoint = os.path.exists(os.path.join(self.path, "state.json"))
        return os.path.join(self.path, *([os.pardir, os.pardir] if is_checkpoint else []), name)

    @property
    def description(self) -> str:
        """The model as a plumb.v1.Model in text format."""
        return self._file("model.pbtxt")

    @property
    def recipe(self) -> str:
        """The recipe as a plumb.v1.Train in text format, with all defaults. Raises FileNotFoundError for an import."""
        return self._file("train.pbtxt")

    @property
    def info(self) -> dict[str, Any]:
        """Data, seed and versions, as in run.json."""
        found: dict[str, Any] = json.loads(self._file("run.json"))
        return found

    @property
    def metrics(self) -> dict[str, list[Any]]:
        """The figures of metrics.csv as columns, for pandas.DataFrame or polars.DataFrame: one row per step; val_loss
        is None where a step has no validation."""
        return read_metrics(self._path("metrics.csv"))

    def sample(self, prompt: str = "", *, max_tokens: int = 0, temperature: float = 0.5, top_k: int = 0,
               top_p: float = 1.0, seed: int = 1, weights: str = "f32") -> str:
        """Draws a continuation of `prompt` like `plumb sample` and returns it with the prompt. It ends at an end token,
        after `max_tokens`, or when the context is full. `temperature` 0 takes the most likely tokens."""
        ids = self.prompt(prompt)
        with Session(self.model, weights=weights) as session:
            session.feed(ids)
            decoder = self.tokenizer.decoder(ids)
            pieces = [decoder.next(token) for token in session.stream(
                max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                vocabulary=min(self.tokenizer.vocab_size, self.model.info.vocab_size),
                end_tokens=self.tokenizer.end_tokens)]
            return prompt + "".join(pieces) + decoder.finish()

    def prompt(self, text: str) -> list[int]:
        """Returns the tokens of a prompt as `plumb sample` feeds them: with those that begin a text in training, unless
        it begins with these itself, and at least one."""
        ids, prefix = self.tokenizer.encode(text), list(self.tokenizer.prefix)
        begin = self.tokenizer.begin
        has_documents = os.path.exists(self._path("train.pbtxt")) and any(
            f"format: {name}" in self.recipe for name in ("DOCUMENTS", "JSONL"))
        if begin is not None and (has_documents or not (prefix or ids)):
            prefix = [begin]
        if prefix == list(ids[:len(prefix)]):
            prefix = []
        return [*prefix, *ids] or [*self.tokenizer.encode("\n")]


def read_metrics(path: Path) -> dict[str, list[Any]]:
    """Reads the metrics.csv of a run, which may be training, as columns: step, loss, lr, grad_norm, tokens, seconds and
    val_loss. Raises ValueError for a damaged row, or if the run was trained by a plumb that wrote metrics.jsonl."""
    path = os.fspath(path)
    earlier = os.path.join(os.path.dirname(path), "metrics.jsonl")
    if os.path.exists(earlier) and not os.path.exists(path):
        raise ValueError(f"{earlier}: was written by an earlier plumb; this one reads metrics.csv: train the run again")
    with open(path, encoding="utf-8") as file:
        header, *lines = file.read().split("\n")[:-1] or [""]  # without a row that is being written
    columns: dict[str, list[Any]] = {name: [] for name in header.split(",") if name}
    for number, line in enumerate(lines, 2):
        cells = line.split(",")
        try:
            if len(cells) != len(columns):
                raise ValueError
            for (name, column), cell in zip(columns.items(), cells):
                column.append(_CELLS[name](cell))
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}:{number}: is no row of metrics: {line!r}") from error
    return {"seconds" if name == "nanoseconds" else name: column for name, column in columns.items()}


def _single(cell: str) -> float:
    """Returns the number in single precision of which `cell` is the shortest text."""
    return array("f", [float(cell)])[0]


_CELLS: dict[str, Callable[[str], Any]] = {
    "step": int, "loss": _single, "lr": float, "grad_norm": _single, "tokens": int,
    "nanoseconds": lambda cell: int(cell) / 1e9, "val_loss": lambda cell: float(cell) if cell else None}


def open_run(path: Path, runtime: Optional[Runtime] = None, *, average: bool = False) -> Run:
    """Opens a run, trained or imported, or one of its checkpoints. `average`: takes the moving average of the weights
    (ema_decay of the recipe). Raises Error if there is no such run or its files are damaged."""
    return Run(path, runtime, average=average)


def train(model: Source, data: Data, recipe: Recipe = None, *, out: Path, set: Settings = None,
          tokenizer: Union[Tokenizer, Path, None] = None, init: Union[Run, Path, None] = None, resume: bool = False,
          probe_every: int = 0, probe_points: Sequence[str] = (), stop_at: int = 0,
          callbacks: Callbacks[RunStep] = (), progress: Optional[bool] = None,
          runtime: Optional[Runtime] = None) -> Run:
    """Trains a run in the directory `out` like `plumb train`, and returns it.

    `model`: a Spec, its text, or a file. `data`: a file, or a list of documents, each a text or a dict of prompt and
    completion, which is written to OUT/data.jsonl. `recipe`: its text, a dict of its fields, or a file; None: all
    defaults. `set`: fields, {"train.max_steps": 200}. `tokenizer`: a Tokenizer, or a file or directory that has one;
    None: as in the recipe. `init`: a run whose weights to start from. `resume`: continues the run that `out` has.
    `stop_at`: stops with a checkpoint after this step. `callbacks` receive a RunStep after each step; one that returns
    False stops the run with a checkpoint. `progress`: shows a line, False: none; None: on terminals and in notebooks,
    and elsewhere a new line every 30 s.

    Ctrl-C, or an exception of a callback, ends the call after a checkpoint was written: `resume=True` continues the
    run. Raises Error, with file, line and column for errors in files; its code is ABORTED if the loss diverged."""
    functions, inputs = functions_of(callbacks), Inputs(out)
    runtime = runtime or Runtime()
    shown: list[Progress] = []  # one, from the first step on

    with Interruptible() as interruptible, input_directory() as directory:
        def receive(_user: Any, found: Any) -> int:
            def body() -> object:
                step = _step_of(found.contents)
                if not shown:
                    inputs.use()
                    shown.append(Progress(step.max_steps, shows=progress))
                shown[0](step)
                return all([function(step) is not False for function in functions])
            return guarded(body) or int(interruptible.stops())

        on_step = structs.RunStepFn(receive)
        of_model, of_recipe = model_file(model, Inputs(directory)), recipe_file(recipe, Inputs(directory))
        path, settings = data_file(data, tokenizer, with_recipe(recipe, set), inputs)
        words, points = _strings(settings_of(settings)), _strings(probe_points)
        training = structs.RunTraining(
            resume=int(resume), model=os.fsencode(of_model), data=os.fsencode(path),
            recipe=None if of_recipe is None else os.fsencode(of_recipe), out=os.fsencode(out),
            init=None if init is None else os.fsencode(run_path(init)), settings=words, settings_count=len(words),
            probe_every=probe_every, probe_points=points, probe_points_count=len(points),
            stop_at=stop_at, on_step=on_step)
        try:
            with runtime._use() as handle:
                call("run_train", handle, byref(training))
        except Cancelled:
            if interruptible.stops():
                raise
        finally:
            for line in shown:
                line.__exit__()
    return Run(out, runtime)


def run_path(run: Union[Run, Path]) -> str:
    """Returns the path of a run that is given as a Run or its directory."""
    return run.path if isinstance(run, Run) else file_path(run, "run", "a Run or its directory")


def _strings(texts: Sequence[str]) -> Any:
    return (c_char_p * len(texts))(*(text.encode() for text in texts))


def _step_of(found: Any) -> RunStep:
    return RunStep(found.step, found.max_steps, found.loss, found.learning_rate, found.grad_norm, found.tokens,
                   found.seconds, None if math.isnan(found.val_loss) else found.val_loss,
                   os.fsdecode(found.checkpoint), tuple(found.incidents.decode("utf-8", "replace").splitlines()))

