# SPDX-License-Identifier: Apache-2.0
"""Descriptions, placements, and the parts of the command line that have no function of their own in the library: they
run the program `plumb` that belongs to the package."""
from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Optional, Union

from ._command import program
from ._files import (Inputs, Path, Settings, Source, input_directory, model_file, model_of, quoted, settings_of,
                     value_text)
from .errors import Code, Error, in_python
from .model import Model, Spec
from .progress import table
from .runs import Run, run_path
from .runtime import Runtime
from .studies import Study


class Placement:
    """A placement: where a model normalizes, as statements over the residual stream x (docs/placements.md). str() is a
    plumb.v1.Placement in text format."""

    def __init__(self, each: Union[str, Sequence[str]] = (), *, name: str = "mine", **fields: object) -> None:
        self.name = name
        statements: dict[str, object] = {"name": name, "each": each, **fields}
        self._text = "placement {\n" + "".join(f"  {line}\n" for field, value in statements.items()
                                               for line in _lines(field, value)) + "}\n"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<plumb.Placement {self.name!r}>"

    def spec(self, *, n_layer: int, n_head: int, d_model: int, context_length: int, norm: str = "rms_norm",
             **fields: object) -> Spec:
        """Returns the description of a model with this placement. `norm`: a norm's id. `fields`: other fields of
        plumb.v1.Model; text that begins with "{" is a message: mlp="{ gated: true }"."""
        sizes = {"n_layer": n_layer, "n_head": n_head, "d_model": d_model, "context_length": context_length}
        text = "".join(line + "\n" for field, value in {**sizes, **fields}.items() for line in _lines(field, value))
        return Spec(f"name: {quoted(self.name)}\n{text}{self._text}"
                    f"block {{ placement: {quoted(self.name)} norm: {quoted(norm)} }}\n", name=self.name)


def placement(each: Union[str, Sequence[str]] = (), *, name: str = "mine", **fields: object) -> Placement:
    """Returns a placement from its statements around every sublayer f: placement("x = x + f(norm(x))", end="x =
    norm(x)"). `fields`: other fields of plumb.v1.Placement, such as begin, block, let and learned."""
    return Placement(each, name=name, **fields)


def _lines(field: str, value: object) -> list[str]:
    """Returns the lines of a field in protobuf's text format."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [line for one in value for line in _lines(field, one)]
    if isinstance(value, str):
        return [f"{field} {value}" if value.startswith("{") else f"{field}: {quoted(value)}"]
    return [f"{field}: {value_text(value)}"]


class Description:
    """A resolved model: `fields` as in model.schema.json, and the data flow of its blocks as SVG. str() is the text of
    `plumb describe`, and a notebook shows the equations, Jacobians, sizes and data flow."""

    def __init__(self, model: Model) -> None:
        self.fields: dict[str, Any] = model.describe()
        self.svg = model.explain("svg")
        self._figures, self._model = repr(model), model.text()

    def __repr__(self) -> str:
        return f"<plumb.Description of {self._figures}>"

    def __str__(self) -> str:
        """Returns the text of `plumb describe`, or repr() if there is no such program, or none that has the model's
        norms, because they are in Python."""
        with tempfile.TemporaryDirectory(prefix="plumb-") as directory, suppress(Error, OSError):
            return _run(["describe", Inputs(directory).write("model.pbtxt", self._model)]).decode()
        return repr(self)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        rows = [["model", text] for text in self.fields["begin"]]
        for layer in self.fields["layers"]:
            name = f"layers {layer['first']} to {layer['last']}, {layer['placement']}"
            rows += [[name, text] for text in layer["equations"]]
            rows += [["Jacobian", one["jacobian"]] for one in layer["jacobians"]]
        rows += [["model", text] for text in self.fields["end"]]
        rows += [[name.replace("_", " "), f"{value:,}"] for name, value in self.fields["totals"].items()]
        picture = base64.b64encode(self.svg.encode()).decode()
        return table([], rows) + f'<img alt="data flow of a layer" src="data:image/svg+xml;base64,{picture}">'


def describe(model: Union[Source, Model], *, set: Settings = None, runtime: Optional[Runtime] = None) -> Description:
    """Describes a model, a Spec, its text or a file: equations, Jacobians, routes, tensors, and a picture. print()
    shows the text of `plumb describe`. A model that takes its vocabulary from the data needs its size,
    set={"model.vocab_size": tokenizer.vocab_size}."""
    if not isinstance(model, Model):
        found = model_of(model)
        spec = Spec(str(found)) if isinstance(found, Spec) else Spec.from_file(found)
        settings_of(set)  # checks it
        for field, value in (set or {}).items():
            spec[field[len("model."):] if field.startswith("model.") else field] = value
        model = Model(runtime or Runtime(), spec)
    return Description(model)


def import_checkpoint(directory: Path, out: Path, *, family: Optional[Path] = None, adapter: Optional[Path] = None,
                      copy: bool = False, allow_unread: Sequence[str] = (),
                      runtime: Optional[Runtime] = None) -> Run:
    """Converts a checkpoint of another program (config.json and safetensors) to a run in `out`, and opens it. `family`:
    a file that maps such checkpoints to plumb; None: the one that ships with plumb. `adapter`: the directory of a LoRA
    adapter of PEFT to merge into the weights. `copy`: copies all weights, which otherwise stay in `directory` where
    plumb can read them. `allow_unread`: keys of config.json to ignore. Raises Error for a checkpoint that is not
    understood completely."""
    words = ["import", os.fspath(directory), "--out", os.fspath(out)]
    words += ["--copy"] if copy else []
    words += [] if family is None else ["--family", os.fspath(family)]
    words += [] if adapter is None else ["--adapter", os.fspath(adapter)]
    for key in allow_unread:
        words += ["--allow-unread", key]
    run_json(words)
    return Run(out, runtime)


def export(run: Union[Run, Path], out: Path, *, family: Optional[str] = None, average: bool = False,
           adapter: bool = False) -> dict[str, Any]:
    """Writes a run as a checkpoint for other programs into the directory `out`, and returns a report. `family`: a name
    or a file; None: that of the import that the run is, or began with. `average`: the moving average of the weights.
    `adapter`: only the model's adapter, for PEFT; otherwise it is merged into the weights."""
    words = ["export", run_path(run), "--out", os.fspath(out)]
    words += ["--ema"] if average else []
    words += ["--adapter"] if adapter else []
    words += [] if family is None else ["--family", family]
    return run_json(words)


def theory(model: Source, *, depths: Sequence[int] = (), seeds: int = 10, set: Settings = None) -> dict[str, Any]:
    """Measures the residual stream and gradients at initialization, compares them with theory, and returns the result
    (plumb docs papers). `depths`: values of n_layer."""
    return _of_model("theory", model, set, ["--seeds", str(seeds)] +
                     (["--depths", ",".join(map(str, depths))] if depths else []))


def bench(model: Source, *, only: Optional[str] = None, batch: Optional[int] = None, dtype: Optional[str] = None,
          weights: Optional[str] = None, rounds: Optional[int] = None, set: Settings = None) -> dict[str, Any]:
    """Measures how fast a model trains, reads prompts and decodes on this machine, and returns the result. `only`:
    "train", "prompt" or "decode"."""
    options: Mapping[str, object] = {"--only": only, "--batch": batch, "--dtype": dtype, "--weights": weights,
                                     "--rounds": rounds}
    return _of_model("bench", model, set, [word for name, value in options.items() if value is not None
                                           for word in (name, str(value))])


def _of_model(command: str, model: Source, set: Settings, options: Sequence[str]) -> dict[str, Any]:
    with input_directory() as directory:
        settings = [word for setting in settings_of(set) for word in ("--set", setting)]
        return run_json([command, model_file(model, Inputs(directory)), *settings, *options])


def report(sources: Union[Study, Run, Path, Sequence[Union[Study, Run, Path]]], *, out: Path) -> Study:
    """Writes the report and the tables of studies and runs, trained by any commands, into the directory `out`, like
    `plumb report`, and returns it as a Study."""
    each = [sources] if isinstance(sources, (Study, Run, str, os.PathLike)) else sources
    paths = [source.path if isinstance(source, Study) else run_path(source) for source in each]
    _run(["report", *paths, "--out", os.fspath(out)])
    return Study(out)


def run_json(words: Sequence[str]) -> dict[str, Any]:
    """Runs a command of plumb and returns what it prints with --json. Raises Error with its message."""
    found: dict[str, Any] = json.loads(_run([*words, "--json"]))
    return found


def _run(words: Sequence[str]) -> bytes:
    """Runs a command of plumb and returns what it prints. Raises Error with its message."""
    ran = subprocess.run([program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if ran.returncode != 0:
        message = ran.stderr.decode("utf-8", "replace").strip()
        raise Error(in_python(message[message.find("error: ") + 7:] if "error: " in message else message),
                    Code.INVALID_ARGUMENT)
    return ran.stdout
