# SPDX-License-Identifier: Apache-2.0
"""Studies: models that are trained with the same data, recipe and seeds, and compared, as `plumb compare` does it."""
from __future__ import annotations

import csv
import ctypes
import glob
import hashlib
import html
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from . import _structs as structs
from ._arguments import integer
from ._calls import Callbacks, Interruptible, call, functions_of, guarded
from ._files import (Data, Inputs, Path, Recipe, Settings, Source, data_file, input_directory, model_of, named_spec,
                     quoted, recipe_file, settings_of, value_text, with_recipe)
from .model import Spec
from .progress import Line, duration, table
from .runs import Run, run_path
from .runtime import Runtime, log_function
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .norms import Norm


class Study:
    """Results of a study, read from its directory. In a notebook it shows the conclusion and the table;
    plumb.figures draws it."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        with open(os.path.join(self.path, "report.json"), encoding="utf-8") as file:
            self.report: dict[str, Any] = json.load(file)

    def __repr__(self) -> str:
        return f"<plumb.Study {self.path!r}: {self.conclusion}>"

    @property
    def conclusion(self) -> str:
        """The findings of the study, in sentences."""
        # Private-use characters surround names, for the page.
        return str(self.report["conclusion"]).translate(dict.fromkeys(range(0xE000, 0xE010)))

    @property
    def runs(self) -> dict[str, list[Any]]:
        """The columns of runs.csv, for pandas.DataFrame or polars.DataFrame: one row per run; None where a run has no
        such figure."""
        with open(os.path.join(self.path, "runs.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return {name: [_value(name, row[name]) for row in rows] for name in (rows[0] if rows else ())}

    def curves(self) -> dict[str, list[Any]]:
        """Returns the losses of all runs as columns, for pandas.DataFrame or polars.DataFrame: `model`, the fields of a
        grid, `seed`, `step`, `loss` and `val_loss`, which are None where a step has none. A row of a run of more than
        500 steps may be the mean of several steps, up to `step`, as on the page: run().metrics has every step."""
        groups, models = self.report["groups"], self.report["models"]
        fields = list(dict.fromkeys(field for group in groups for field in group["settings"]))
        columns: dict[str, list[Any]] = {name: [] for name in ("model", *fields, "seed", "step", "loss", "val_loss")}
        for run in self.report["runs"]:
            group = groups[run["group"]]
            losses = dict(zip(group["steps"] or range(1, 1 + len(run["loss"])), run["loss"]))
            validation = {int(step): loss for step, loss in run["validation"]}
            for step in sorted({*losses, *validation}):
                settings = [_value(field, group["settings"].get(field, "")) for field in fields]
                cells = [models[group["model"]]["name"], *settings, run["seed"], step, losses.get(step),
                         validation.get(step)]
                for column, cell in zip(columns.values(), cells):
                    column.append(cell)
        return columns

    def run(self, model: str, seed: int, cell: Optional[str] = None, *, runtime: Optional[Runtime] = None) -> Run:
        """Opens the run of a model with a seed: its metrics and, if the study keeps its weights, its model. `cell`:
        such as "learning_rate=0.01"; None: the model's best, or the only one. Raises KeyError if there is no such
        run."""
        models, cells = [one["name"] for one in self.report["models"]], self.report["cells"] or [""]
        groups = {(models[one["model"]], cells[one["cell"]]): one["name"] for one in self.report["groups"]}
        if cell is None:
            best = {row["model"]: row["cell"] for row in self.best()} if self.report.get("best") else {}
            cell = best.get(model, cells[0])
        runs, place = self.runs, (groups.get((model, cell)), seed)
        hashes = [run_hash for *own, run_hash in zip(runs["group"], runs["seed"], runs["run_hash"])
                  if tuple(own) == place]
        for path in glob.glob(os.path.join(glob.escape(self.path), "runs", "*", "run.json")):
            with open(path, encoding="utf-8") as file:  # whose hash is that in runs.csv
                identity = json.load(file).get("identity")
            text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            if hashlib.sha256(text.encode()).hexdigest()[:16] in hashes:
                return Run(os.path.dirname(path), runtime)
        raise KeyError(f"{self.path} has no run of {', '.join(filter(None, (model, cell)))} with seed {seed}; it has "
                       f"those of {'; '.join(groups.values())}")

    def differences(self) -> list[dict[str, Any]]:
        """Returns the difference of each pair of models in each cell, of runs with the same seeds: `mean` of the
        metric, 95 % interval `low` to `high`, `runs`, numbers of seeds with which `model` is `lower` and `higher`, the
        `test` that decides ("t", "sign flips" if a run collapsed, "signs" if one diverged), `p_holm`, its p-value
        adjusted by Holm's method for all models against the first (or, of other pairs, for all pairs), `p_equal`, that
        of equality within the study's margin, and `p_student` and `p_sign_flip`. `mean` is None if a run diverged."""
        groups, models = self.report["groups"], self.report["models"]
        cells = self.report["cells"] or [""]
        return [{"cell": cells[pair["cell"]], "model": models[groups[pair["group"]]["model"]]["name"],
                 "against": models[groups[pair["against"]]["model"]]["name"],
                 **{key: value for key, value in pair.items() if key not in ("cell", "group", "against")}}
                for pair in self.report["paired"]]

    def best(self) -> list[dict[str, Any]]:
        """Returns each model at its best cell, which other seeds than the reported ones chose, the best model first:
        `model`, `cell`, `mean`, `low`, `high`, `sd`, `runs`, `diverged`, `place`, `mean_rank`. Raises ValueError for
        a study with one cell."""
        best = self.report.get("best")
        if best is None:
            raise ValueError(f"{self.path}: the study has one cell; give a grid of settings")
        rows = [{**figures, "model": model["name"], "cell": self.report["cells"][figures["cell"]]}
                for model, figures in zip(self.report["models"], best["models"])]
        return sorted(rows, key=outcome_key)

    def _repr_html_(self) -> str:
        found = self.report["table"]
        rows = [[cell["text"] for cell in row] for row in found["rows"]]
        return f"<p>{html.escape(self.conclusion)}</p>{table(found['columns'], rows)}"


class StudyProgress(NamedTuple):
    """Progress of compare(): numbers of `runs`, of those that have `ended`, and of those of them that are `reused`; of
    `steps` of the runs that are trained, and of `steps_taken`. `new` are the directories of the runs that have ended
    since the last call, for open_run()."""
    runs: int
    ended: int
    reused: int
    steps: int
    steps_taken: int
    new: tuple[str, ...]


def outcome_key(result: Mapping[str, Any]) -> tuple[bool, bool, float, float]:
    """Returns what orders results, the best first: as plumb ranks models, those of two finished runs, by the share of
    diverged runs and then by the mean."""
    diverged = result.get("diverged", 0)  # which reports of earlier versions lack
    share = diverged / max(1, diverged + result["runs"])
    return result["mean"] is None, result["runs"] < 2, share, result["mean"] or 0.0


def compare(models: Union[Source, Sequence[Source], Mapping[str, Source]], data: Data,
            recipe: Recipe = None, *, out: Path,
            grid: Optional[Mapping[str, Union[str, Sequence[object]]]] = None,
            seeds: Union[int, Sequence[int]] = 3, choosing_seeds: int = 0, margin: float = 0.0, set: Settings = None,
            tokenizer: Union[Tokenizer, Path, None] = None, match: str = "steps", init: Union[Run, Path, None] = None,
            samples: int = 8, probe_every: int = 0, probe_points: Sequence[str] = (), keep_checkpoints: bool = False,
            store: Optional[Path] = None, overwrite: bool = False, norms: Sequence[Norm] = (), threads: int = 0,
            title: Optional[str] = None, callbacks: Callbacks[StudyProgress] = (),
            progress: Optional[bool] = None) -> Study:
    """Trains each model with the same data, recipe and seeds in the directory `out`, and compares them. Trains only
    runs that `out`, or the `store`, does not have yet, so that a study can be interrupted and extended. Runs that `out`
    has must have had the same inputs; with `overwrite`, those that had others are trained again.

    `models`: Specs, their texts, or files; the first one is the baseline; the keys of a mapping are the models' names.
    `data`, `recipe`, `tokenizer` and `init`: as in train(). Objects and texts are written to `out`, the models to
    OUT/models. `grid`: fields with several values, {"train.learning_rate": [0.001, 0.01], "model.block.placement":
    ["pre", "post"]}, or a range of learning rates, "0.005..0.02". `seeds`: a number N, for 1 to N, or the seeds. If the
    grid has several cells (combinations of settings), the first half of the seeds chooses each model's best cell, and
    the results in it are those of the other half: seeds=8 compares by 4. `choosing_seeds`: number of seeds that choose,
    instead of half; the others are then trained in the best cell alone. `margin`: difference in nats below which a
    model counts as equal to the baseline, 0: none. `set`: fields of every run. `match`: the cost that models in a cell
    have in common: "steps", "tokens", "flops" or "parameters". `keep_checkpoints`: keeps those of every run, with
    optimizer state, instead of the last weights of the first seed. `norms`: norms in Python that models name.
    `threads`: number that runs divide, 0: all processors. `title`: that of the report; None: the models' names.
    `callbacks` receive a StudyProgress several times a second and when runs end; one that returns False ends the call.
    `progress`: as in train().

    Ctrl-C, a callback's False (which raises Cancelled) or its exception end the call with the runs' checkpoints; the
    same call continues. Raises Error, with file, line and column for errors in files."""
    out = os.fspath(out)
    inputs, grid = Inputs(out, overwrite), grid or {}
    paths = _model_paths(models, inputs)
    path, settings = data_file(data, tokenizer, with_recipe(recipe, set, grid), inputs)
    labels: list[str] = []
    functions, line, begin = functions_of(callbacks), Line(progress), time.monotonic()
    seen = _ended_runs(out)
    told = -1  # number of ended runs at the last call

    with Interruptible() as interruptible, input_directory(labels) as directory:
        def receive(_user: Any, found: Any) -> int:
            def body() -> object:
                nonlocal told
                now = found.contents
                if now.steps_taken:
                    inputs.use()
                line.show(_text_of(now, begin))
                new = _ended_runs(out) - seen if functions and now.ended != told else ()
                told = now.ended
                seen.update(new)
                made = StudyProgress(now.runs, now.ended, now.reused, now.steps, now.steps_taken,
                                     tuple(sorted(path for path, _ in new)))
                return all([function(made) is not False for function in functions])
            return guarded(body) or int(interruptible.stops())

        study = os.path.join(directory, "study.pbtxt")
        lines = _study_lines(paths, path, recipe_file(recipe, inputs), grid, seeds, choosing_seeds, margin, settings,
                             match, None if init is None else run_path(init), samples, probe_every, probe_points,
                             keep_checkpoints, title)
        labels += [label for label, _ in lines]
        with open(study, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for _, line in lines)
        log, on_progress = log_function(None), structs.StudyProgressFn(receive)
        runtime = structs.RuntimeOptions(threads=threads, log=ctypes.cast(log, c_void_p))
        tables = (c_void_p * len(norms))(*(norm.address for norm in norms))
        options = structs.StudyOptions(
            out=os.fsencode(out), store=None if store is None else os.fsencode(store), runtime=ctypes.pointer(runtime),
            norms=tables, norms_count=len(norms), command=shlex.join(sys.argv).encode(errors="replace"),
            on_progress=on_progress, overwrite=overwrite)
        try:
            call("study_run", os.fsencode(study), byref(options))
        finally:
            line.end()
    inputs.use()
    return Study(out)


def _ended_runs(out: str) -> set[tuple[str, int]]:
    """Returns the directories of the runs that have ended, with the time of it."""
    return {(os.path.dirname(path), os.stat(path).st_mtime_ns)
            for path in glob.glob(os.path.join(glob.escape(out), "runs", "*", "result.json"))}


def _model_paths(models: Any, inputs: Inputs) -> list[str]:
    """Returns the absolute paths of the models; objects and texts, and all models of a mapping, become files of
    `inputs`."""
    found: dict[str, Union[Spec, str]]
    if isinstance(models, Mapping):
        found = {str(name): named_spec(source, str(name)) for name, source in models.items()}
    elif isinstance(models, Sequence) and not isinstance(models, str):
        found = {f"model_{i + 1}": model_of(source, f"models[{i}]") for i, source in enumerate(models)}
    else:
        found = {"model": model_of(models, "models")}
    if not found:
        raise ValueError("models has no model")
    files = ["models/" + re.sub(r"[^\w.+-]", "_", name) + ".pbtxt" for name in found]
    paths = []
    for file, (name, source) in zip(files, found.items()):
        if isinstance(source, Spec) and files.count(file) > 1:
            raise ValueError(f"{file} would be the file of two models; choose another name for {name!r}")
        paths.append(os.path.abspath(source) if isinstance(source, str) else inputs.write(file, str(source)))
    return paths


def _study_lines(paths: Sequence[str], data: str, recipe: Optional[str],
                 grid: Mapping[str, Union[str, Sequence[object]]], seeds: Union[int, Sequence[int]],
                 choosing_seeds: int, margin: float, set: Mapping[str, object], match: str, init: Optional[str],
                 samples: int, probe_every: int, probe_points: Sequence[str], keep_checkpoints: bool,
                 title: Optional[str]) -> list[tuple[str, str]]:
    """Returns the lines of the study as a plumb.v1.Study in text format, each after the name of its argument."""
    lines = [("models", f"model: {quoted(path)}") for path in paths]
    for name, field, path in (("data", "data", data), ("recipe", "train", recipe), ("init", "init", init)):
        if path is not None:
            lines.append((name, f"{field}: {quoted(os.path.abspath(path))}"))
    lines += [(f'set["{field}"]', f"set: {quoted(setting)}") for field, setting in zip(set, settings_of(set))]
    for field, values in grid.items():
        if not isinstance(values, Iterable):
            raise TypeError(f"grid[{field!r}] must be a list of values, not {type(values).__name__}")
        each = [values] if isinstance(values, str) else values
        texts = " ".join(f"value: {quoted(value_text(value))}" for value in each)
        lines.append((f'grid["{field}"]', f"grid {{ field: {quoted(field)} {texts} }}"))
    if isinstance(seeds, Iterable):
        lines += [(f"seeds[{i}]", f"seed: {integer(seed, f'seeds[{i}]')}") for i, seed in enumerate(seeds)]
    else:
        lines.append(("seeds", f"seeds: {integer(seeds, 'seeds')}"))
    if choosing_seeds:
        lines.append(("choosing_seeds", f"choosing_seeds: {choosing_seeds}"))
    if margin:
        lines.append(("margin", f"margin: {float(margin)!r}"))
    if match != "steps":
        lines.append(("match", f"match: {match.upper()}"))
    if keep_checkpoints:
        lines.append(("keep_checkpoints", "keep_checkpoints: true"))
    if title is not None:
        lines.append(("title", f"title: {quoted(title)}"))
    lines += [("samples", f"samples: {samples}"), ("probe_every", f"probe_every: {probe_every}")]
    return lines + [("probe_points", f"probe_point: {quoted(point)}") for point in probe_points]


def _text_of(found: Any, begin: float) -> str:
    text = f"{found.ended:,} of {found.runs:,} runs have ended"
    if found.reused:
        text += f", {found.reused:,} of them before"
    if 0 < found.steps_taken < found.steps:
        left = (time.monotonic() - begin) * (found.steps - found.steps_taken) / found.steps_taken
        text += f", {duration(left)} left"
    return text


_TEXTS = ("group", "model", "status", "model_hash", "recipe_hash", "data_hash", "run_hash")


def _value(column: str, text: str) -> Any:
    """Returns a cell of runs.csv as a number where it is one, and else without the "'" before a formula."""
    text = re.sub(r"^'(?=[=+\-@\t\r\n])", "", text)
    if column in _TEXTS:
        return text
    if text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
