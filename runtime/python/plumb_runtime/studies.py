# SPDX-License-Identifier: Apache-2.0
"""Studies: models that are trained with the same data, recipe and seeds, and compared, as `plumb compare` does it."""
from __future__ import annotations

import csv
import ctypes
import html
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _structs as structs
from ._calls import Interruptible, call, guarded
from ._files import Settings, Source, model_path, quoted, settings_of, value_text
from .progress import Line, duration
from .runtime import log_function

if TYPE_CHECKING:
    from .norms import Norm

Path = Union[str, "os.PathLike[str]"]


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
        table = self.report["table"]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in table["columns"])
        cells = [[f"<td style='white-space: nowrap'>{html.escape(cell['text'])}</td>" for cell in row]
                 for row in table["rows"]]
        rows = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        return f"<p>{html.escape(self.conclusion)}</p><table><thead><tr>{head}</tr></thead>{rows}</table>"


def outcome_key(result: Mapping[str, Any]) -> tuple[bool, bool, float, float]:
    """Returns what orders results, the best first: as plumb ranks models, those of two finished runs, by the share of
    diverged runs and then by the mean."""
    diverged = result.get("diverged", 0)  # which reports of earlier versions lack
    share = diverged / max(1, diverged + result["runs"])
    return result["mean"] is None, result["runs"] < 2, share, result["mean"] or 0.0


def compare(models: Union[Source, Sequence[Source], Mapping[str, Source]], data: Path, recipe: Optional[Path] = None, *,
            out: Path, grid: Optional[Mapping[str, Sequence[object]]] = None, seeds: Union[int, Sequence[int]] = 3,
            choosing_seeds: int = 0, margin: float = 0.0, set: Settings = None, match: str = "steps",
            init: Optional[Path] = None, samples: int = 8, probe_every: int = 0, probe_points: Sequence[str] = (),
            keep_checkpoints: bool = False,
            store: Optional[Path] = None, overwrite: bool = False, norms: Sequence[Norm] = (), threads: int = 0,
            progress: Optional[bool] = None) -> Study:
    """Trains each model with the same data, recipe and seeds in the directory `out`, and compares them. Trains only
    runs that `out`, or the `store`, does not have yet, so that a study can be interrupted and extended. Runs that `out`
    has must have had the same inputs; with `overwrite`, those that had others are trained again.

    `models`: files or Specs; the first one is the baseline; the keys of a mapping name Specs, which are written to
    OUT/models. `grid`: fields with
    several values, {"train.learning_rate": [0.001, 0.01], "model.block.placement": ["pre", "post"]}. `seeds`: a number
    N, for 1 to N, or the seeds. `choosing_seeds`: number of seeds that choose each model's best cell, in which alone
    the others are trained. `margin`: difference in nats below which a model counts as equal to the baseline, 0: none.
    `set`: fields of every run. `match`: the cost that models in a cell have in common: "steps",
    "tokens", "flops" or "parameters". `keep_checkpoints`: keeps those of every run, with optimizer state, instead of the
    last weights of the first seed. `norms`: norms in Python that models name. `threads`: number that runs
    divide, 0: all processors.

    Ctrl-C ends the call with the runs' checkpoints; the same call continues. Raises Error, with file, line and column
    for errors in files."""
    paths = [model_path(source, os.path.join(out, "models"), name) for name, source in _named(models)]
    line, begin = Line(progress), time.monotonic()
    with Interruptible() as interruptible, tempfile.TemporaryDirectory(prefix="plumb-") as directory:
        def receive(_user: Any, found: Any) -> int:
            return guarded(lambda: line.show(_text_of(found.contents, begin))) or int(interruptible.stops())

        study = os.path.join(directory, "study.pbtxt")
        with open(study, "w", encoding="utf-8") as file:
            file.write(_study_text(paths, data, recipe, grid or {}, seeds, choosing_seeds, margin, set, match, init,
                                   samples, probe_every, probe_points, keep_checkpoints))
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
    return Study(out)


def _named(models: Union[Source, Sequence[Source], Mapping[str, Source]]) -> list[tuple[str, Source]]:
    if isinstance(models, Mapping):
        return list(models.items())
    if isinstance(models, Sequence) and not isinstance(models, str):
        return [(f"model_{i + 1}", source) for i, source in enumerate(models)]
    return [("model", models)]


def _study_text(paths: Sequence[str], data: Path, recipe: Optional[Path], grid: Mapping[str, Sequence[object]],
                seeds: Union[int, Sequence[int]], choosing_seeds: int, margin: float, set: Settings, match: str,
                init: Optional[Path], samples: int, probe_every: int, probe_points: Sequence[str],
                keep_checkpoints: bool) -> str:
    """Returns the study as a plumb.v1.Study in text format."""
    lines = [f"model: {quoted(path)}" for path in paths]
    for field, path in (("data", data), ("train", recipe), ("init", init)):
        if path is not None:
            lines.append(f"{field}: {quoted(os.path.abspath(os.fspath(path)))}")
    lines += [f"set: {quoted(setting)}" for setting in settings_of(set)]
    for field, values in grid.items():
        texts = " ".join(f"value: {quoted(value_text(value))}" for value in values)
        lines.append(f"grid {{ field: {quoted(field)} {texts} }}")
    lines += [f"seeds: {seeds}"] if isinstance(seeds, int) else [f"seed: {seed}" for seed in seeds]
    if choosing_seeds:
        lines.append(f"choosing_seeds: {choosing_seeds}")
    if margin:
        lines.append(f"margin: {margin!r}")
    if match != "steps":
        lines.append(f"match: {match.upper()}")
    if keep_checkpoints:
        lines.append("keep_checkpoints: true")
    lines += [f"samples: {samples}", f"probe_every: {probe_every}"]
    lines += [f"probe_point: {quoted(point)}" for point in probe_points]
    return "\n".join(lines) + "\n"


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
