# SPDX-License-Identifier: Apache-2.0
"""Figures of a study for papers, by matplotlib, from the data of its report page and in the page's colors and dashes:

    axes = plumb.figures.curves("study", x="tokens")
    plumb.figures.save(axes, "curves.pdf")

Each function draws into `axes`, or into a new figure, and returns the Axes, with which everything can be changed."""
from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from .studies import Study, outcome_key

Source = Union[Study, str, "os.PathLike[str]"]
Point = tuple[float, ...]  # x, y, and for a band low and high


def curves(study: Source, *, x: str = "steps", smoothing: Optional[int] = None, axes: Any = None) -> Any:
    """Draws the smoothed training losses: mean ± standard deviation over the seeds. `x`: "steps", "tokens" or "FLOPs".
    `smoothing`: number of steps that the average covers; None: that of the page at first. Runs that diverged are not in
    the means, unless all did."""
    report, axes = _report(study), _axes(axes)
    window = max(1, min(50, report["steps"] // 40) if smoothing is None else smoothing)
    for group, color, dash in _drawn(report):
        runs = [report["runs"][run] for run in group["runs"]]
        runs = [run for run in runs if run["status"] == "finished"] or runs
        ends = group["steps"] or range(1, 1 + max((len(run["loss"]) for run in runs), default=0))
        losses = itertools.zip_longest(*(_smoothed(run["loss"], ends, window) for run in runs), fillvalue=math.nan)
        points = []
        for end, values in zip(ends, ([loss for loss in at if not math.isnan(loss)] for at in losses)):
            mean = statistics.fmean(values) if values else math.nan
            sd = statistics.stdev(values) if len(values) > 1 else 0.0
            points.append((end * _amount(group, x), mean, mean - sd, mean + sd))
        _line(axes, points, group["name"], color, dash)
    return _finish(axes, "step" if x == "steps" else x, "training loss")


def ranking(study: Source, *, axes: Any = None) -> Any:
    """Draws the judged loss of each model, the best on top, with its 95 % confidence interval: each model at its best
    setting if the study chose one, otherwise each group of runs."""
    report, axes = _report(study), _axes(axes)
    rows = [(group["result"], group["name"]) for group in report["groups"]]
    if report["best"]:
        names = _names_at_best(report)
        rows = [(result, names[model]) for model, result in enumerate(report["best"]["models"])]
    rows = sorted((row for row in rows if row[0]["mean"] is not None), key=lambda row: outcome_key(row[0]))
    return _dots(axes, report, rows, f"loss ({report['judged']})")


def differences(study: Source, *, axes: Any = None) -> Any:
    """Draws the difference of each model from the baseline in the judged loss, the best on top, with its 95 %
    confidence interval: at the best settings if the study chose them, otherwise in each cell. A pair with a run that
    diverged has no difference and is not drawn. Raises ValueError if there is none to draw."""
    report, axes = _report(study), _axes(axes)
    rows = sorted(((pair, name) for name, pair in _differences(report).items()), key=lambda row: row[0]["mean"])
    if not rows:
        raise ValueError("the study has no difference from the baseline: it has one model, or its runs diverged")
    axes.axvline(0, color="gray", linewidth=0.8)
    return _dots(axes, report, rows, f"loss − {report['models'][0]['name']} ({report['judged']})")


def sweep(study: Source, setting: Optional[str] = None, *, axes: Any = None) -> Any:
    """Draws the judged loss of each model over a setting with numbers, such as "train.learning_rate"; None: the only
    setting. Each is the mean at the best of the other settings, with its 95 % confidence interval. The axis is
    logarithmic if the values differ by a factor of 8. Raises KeyError if the study has no such setting."""
    report = _report(study)
    if setting is None:
        names = _settings(report)
        if len(names) != 1:
            raise ValueError(f"give a setting; the study has {', '.join(names) or 'none, without a grid'}")
        setting = names[0]
    try:
        losses = {(model, float(value)): result for (model, value), result in _losses(report, [setting]).items()}
    except (KeyError, ValueError):
        raise KeyError(_no_setting(report, setting, " with numbers")) from None
    axes = _axes(axes)
    drawn: set[int] = set()
    for group, color, dash in _drawn(report):
        model = group["model"]
        points = sorted((value, *result) for (own, value), result in losses.items()
                        if own == model and model not in drawn and math.isfinite(result[0]))
        drawn.add(model)
        if points:
            _line(axes, points, report["models"][model]["name"], color, dash, marker="o")
    _scale(axes, [value for _, value in losses])
    return _finish(axes, str(setting).split(".", 1)[-1], f"loss ({report['judged']})")


def heat_map(study: Source, x: str, y: str, *, model: Optional[str] = None, axes: Any = None) -> Any:
    """Draws the judged loss of a model over two settings, the mean at the best of the others; a cell without a finished
    run is empty. `model`: its name; None: the baseline. Raises KeyError if there is no such model or setting."""
    report = _report(study)
    models = [one["name"] for one in report["models"]]
    if model is not None and model not in models:
        raise KeyError(f"no model {model!r}; there are {', '.join(models)}")
    number = 0 if model is None else models.index(model)
    means = {(column, row): result[0] for (own, column, row), result in _losses(report, [x, y]).items()
             if own == number and math.isfinite(result[0])}
    columns, rows = (list(dict.fromkeys(group["settings"][field] for group in report["groups"])) for field in (x, y))
    axes = _axes(axes)
    grid = [[means.get((column, row), math.nan) for column in columns] for row in rows]
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
    axes.figure.colorbar(image, ax=axes, label=f"loss ({report['judged']})")
    for i, row in enumerate(grid):
        for j, mean in enumerate(row):
            if not math.isnan(mean):
                color = "white" if image.norm(mean) < 0.6 else "black"
                axes.text(j, i, f"{mean:.3f}", ha="center", va="center", color=color)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set(title=models[number], xlabel=x.split(".", 1)[-1], ylabel=y.split(".", 1)[-1])
    return axes


def ladder(studies: Mapping[float, Source], *, models: Optional[Sequence[str]] = None, axes: Any = None) -> Any:
    """Draws how the difference of each model from the baseline changes with size: `studies` has a study, or a file of
    examples/benchmark/results, for each depth, width or number of tokens. Intervals are of 95 %; the axis is
    logarithmic if the sizes differ by a factor of 8. `models`: the names to draw, at most 8; None: all. Raises KeyError
    for a name that no study has."""
    found = {size: _differences(_report(study)) for size, study in studies.items()}
    known = list(dict.fromkeys(name for pairs in found.values() for name in pairs))
    chosen, palette = known if models is None else list(models), _palette()
    for name in chosen:
        if name not in known:
            raise KeyError(f"no study has a difference of {name!r}; there are {', '.join(known)}")
    if len(chosen) > len(palette["light"]):
        raise ValueError(f"{len(chosen)} models are more than the colors; give the names of at most 8 as models")
    axes = _axes(axes)
    axes.axhline(0, color="gray", linewidth=0.8)
    for i, name in enumerate(chosen):
        points = [(size, *_interval(found[size][name])) for size in sorted(found) if name in found[size]]
        _line(axes, points, name, palette["light"][i], palette["dashes"][i % len(palette["dashes"])], marker="o")
    _scale(axes, list(found))
    return _finish(axes, "size", "loss − baseline")


def probe(study: Source, kind: str, *, x: str = "layers", axes: Any = None) -> Any:
    """Draws a kind of probe, such as "gradient norm", as mean over the seeds. `x`: "layers", at the last probed step,
    or "steps", "tokens" or "FLOPs", for the mean of the layers, or the largest, as on the page. Raises KeyError if the
    study has no such probe."""
    report, axes = _report(study), _axes(axes)
    probes = [(group, color, dash, one) for group, color, dash in _drawn(report) if group["probes"]
              for one in group["probes"]["series"]]
    if kind not in (known := sorted({one["name"] for *_, one in probes})):
        raise KeyError(f"no probe {kind!r}; there are {', '.join(known) or 'none'}")
    for group, color, dash, one in (entry for entry in probes if entry[3]["name"] == kind):
        # A layer, or a step that diverged, may have no value.
        rows = [(step, [(layer, value) for layer, value in enumerate(values) if value is not None])
                for step, values in zip(group["probes"]["steps"], one["values"])]
        rows = [row for row in rows if row[1]]
        over = max if one["largest"] else statistics.fmean
        points: list[Point] = [*rows[-1][1]] if x == "layers" and rows else [
            (step * _amount(group, x), over([value for _, value in row])) for step, row in rows]
        _line(axes, points, group["name"], color, dash, marker="o")
        axes.set_yscale("log" if one["log"] else "linear")
    return _finish(axes, {"layers": "layer", "steps": "step"}.get(x, x), kind)


def save(axes: Any, path: Union[str, "os.PathLike[str]"], **options: Any) -> None:
    """Saves the figure of the Axes like matplotlib's savefig, with TrueType fonts in PDF and PostScript, because
    publishers refuse matplotlib's Type 3 fonts."""
    with importlib.import_module("matplotlib").rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        axes.figure.savefig(path, **options)


def _report(study: Source) -> dict[str, Any]:
    """Returns the data of a study's page, or of a file of examples/benchmark/results."""
    if isinstance(study, Study):
        return study.report
    if not os.path.isfile(study):
        return Study(study).report
    with open(study, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def _differences(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the differences from the baseline that have a mean, by the name of the model or group."""
    if "groups" not in report:  # a file of examples/benchmark/results
        pairs: dict[str, Mapping[str, Any]] = dict(report["paired"])
    elif report["best"]:
        names = _names_at_best(report)
        pairs = {names[pair["model"]]: pair for pair in report["best"]["paired"] if pair["against"] == 0}
    else:
        groups = report["groups"]
        pairs = {groups[pair["group"]]["name"]: pair for pair in report["paired"]
                 if pair["metric"] == report["judged"] and groups[pair["against"]]["model"] == 0}
    return {name: pair for name, pair in pairs.items() if pair["mean"] is not None}


def _names_at_best(report: Mapping[str, Any]) -> list[str]:
    """Returns the name of each model's group at its best setting."""
    groups = {(group["model"], group["cell"]): group["name"] for group in report["groups"]}
    return [groups[model, result["cell"]] for model, result in enumerate(report["best"]["models"])]


def _settings(report: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for group in report["groups"] for name in group["settings"]))


def _no_setting(report: Mapping[str, Any], setting: object, kind: str = "") -> str:
    return f"no setting {setting!r}{kind}; the settings are: {', '.join(_settings(report)) or 'none, without a grid'}"


def _losses(report: Mapping[str, Any], fields: Sequence[Optional[str]]) -> dict[Any, Point]:
    """Returns the judged loss with its interval, by model and values of the settings, at the best of the others. Raises
    KeyError if there is no such setting."""
    found: dict[Any, Point] = {}
    for group in report["groups"]:
        for field in fields:
            if field not in group["settings"]:
                raise KeyError(_no_setting(report, field))
        key, result = (group["model"], *(group["settings"][field] for field in fields)), _interval(group["result"])
        found[key] = min(found.get(key, result), result)
    return found


def _dots(axes: Any, report: Mapping[str, Any], rows: Sequence[tuple[Mapping[str, Any], str]], label: str) -> Any:
    """Draws means with their intervals, the first row on top."""
    drawn, models = _drawn(report), {group["name"]: group["model"] for group in report["groups"]}
    of_models = {group["model"]: color for group, color, _ in reversed(drawn)}  # of the best group of each
    colors = {group["name"]: color for group, color, _ in drawn}
    for y, (result, name) in enumerate(reversed(rows)):
        mean, low, high = _interval(result)
        color = colors.get(name, of_models.get(models[name], "gray"))
        axes.errorbar(mean, y, xerr=[[mean - low], [high - mean]], fmt="o", capsize=3, color=color)
    axes.set_yticks(range(len(rows)), [name for _, name in reversed(rows)])
    axes.set_xlabel(label)
    return axes


def _scale(axes: Any, values: Sequence[float]) -> None:
    """Makes the x axis logarithmic if the values differ by a factor of 8, and marks the values if they are few."""
    if min(values) > 0 and max(values) >= 8 * min(values):
        axes.set_xscale("log")
    marks = sorted({*values})
    if len(marks) <= 6:
        axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axes.minorticks_off()


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plumb.figures draws with matplotlib: pip install matplotlib") from error
    return pyplot.subplots(figsize=(5, 3.2), layout="constrained")[1]


def _palette() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "palette.json"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def _drawn(report: Mapping[str, Any]) -> list[tuple[dict[str, Any], str, Sequence[float]]]:
    """Returns the groups that the page draws at first with their colors and dashes, the best result first: all; or each
    model at its best setting; or, of many models, the best three, the baseline and the worst."""
    palette = _palette()
    groups, colors, dashes = report["groups"], palette["light"], palette["dashes"]
    order = sorted(range(len(groups)), key=lambda i: outcome_key(groups[i]["result"]))
    shown = list(range(len(groups)))
    if len(groups) > len(colors):
        at_best = set(_names_at_best(report)) if report["best"] else {group["name"] for group in groups}
        ranked = [i for i in order if groups[i]["name"] in at_best]
        bests = {model: next(i for i in ranked if groups[i]["model"] == model) for model in range(len(report["models"]))}
        ranked = [i for i in ranked if groups[i]["result"]["mean"] is not None]
        shown = [*bests.values()] if len(bests) <= len(colors) else [*ranked[:3], bests[0], *ranked[-1:]]
    slots = {i: slot for slot, i in enumerate(dict.fromkeys(shown))}
    return [(groups[i], colors[slots[i]], dashes[slots[i] % len(dashes)]) for i in order if i in slots]


def _interval(result: Mapping[str, Any]) -> Point:
    """Returns mean, low and high; an infinite mean without a result, and the mean for missing ends."""
    mean = math.inf if result["mean"] is None else result["mean"]
    return mean, mean if result["low"] is None else result["low"], mean if result["high"] is None else result["high"]


def _amount(group: Mapping[str, Any], x: str) -> float:
    """Returns the amount of one step of a group."""
    tokens = group["tokens_per_step"] or 0.0
    amounts: dict[str, float] = {"steps": 1.0, "tokens": tokens, "FLOPs": tokens * group["flops_per_token"]}
    if not amounts.get(x):
        has = ", ".join(name for name, amount in amounts.items() if amount)
        raise ValueError(f"no axis {x!r} for {group['name']}; there are {has}")
    return amounts[x]


def _smoothed(losses: Sequence[Optional[float]], ends: Sequence[int], window: int) -> list[float]:
    """Returns the exponential moving average, without a bias to the first value; a loss is the mean of the steps up to
    its end."""
    total = weight = begin = 0.0
    smoothed = []
    for loss, end in zip(losses, ends):
        past = (1 - 1 / window) ** (end - begin)
        begin = end
        if loss is not None:
            total, weight = past * total + (1 - past) * loss, past * weight + 1 - past
        smoothed.append(math.nan if loss is None else total / weight)
    return smoothed


def _line(axes: Any, points: Sequence[Point], name: str, color: str, dash: Sequence[float],
          marker: Optional[str] = None) -> None:
    xs, ys, *band = zip(*points) if points else ((), ())
    style = (0, [length / 2.25 for length in dash]) if dash else "-"  # in widths of the page's lines
    axes.plot(xs, ys, label=name, color=color, linestyle=style, linewidth=1.7, marker=marker, markersize=4)
    if band:
        axes.fill_between(xs, *band, color=color, alpha=0.14, linewidth=0)


def _finish(axes: Any, x: str, y: str) -> Any:
    axes.set(xlabel=x, ylabel=y)
    axes.legend(frameon=False)
    return axes
