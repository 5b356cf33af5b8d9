# SPDX-License-Identifier: Apache-2.0
"""Figures of a study for papers, by matplotlib, from the data of its report page and in the page's colors and dashes:

    axes = plumb.figures.curves("study", x="tokens")
    axes.figure.savefig("curves.pdf")

Each function draws into `axes`, or into a new figure, and returns the Axes, with which everything can be changed."""
from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
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
    colors = {group["name"]: color for group, color, _ in _drawn(report)}
    rows = [(group["result"], group["name"]) for group in report["groups"]]
    if report["best"]:
        groups = {(group["model"], group["cell"]): group["name"] for group in report["groups"]}
        rows = [(result, groups[model, result["cell"]]) for model, result in enumerate(report["best"]["models"])]
    rows = sorted((row for row in rows if row[0]["mean"] is not None), key=lambda row: outcome_key(row[0]), reverse=True)
    for y, (result, name) in enumerate(rows):
        mean, low, high = _interval(result)
        axes.errorbar(mean, y, xerr=[[mean - low], [high - mean]], fmt="o", capsize=3, color=colors.get(name, "gray"))
    axes.set_yticks(range(len(rows)), [name for _, name in rows])
    axes.set_xlabel(f"loss ({report['judged']})")
    return axes


def sweep(study: Source, setting: str, *, axes: Any = None) -> Any:
    """Draws the judged loss of each model over a setting with numbers, such as "train.learning_rate": the mean at the
    best of the other settings, with its 95 % confidence interval. The axis is logarithmic if the values differ by a
    factor of 8. Raises KeyError if the study has no such setting."""
    report, axes = _report(study), _axes(axes)
    try:
        values = [float(group["settings"][setting]) for group in report["groups"]]
    except (KeyError, ValueError):
        names = ", ".join(report["groups"][0]["settings"]) or "none"
        raise KeyError(f"no setting {setting!r} with numbers; the settings are: {names}") from None
    best: dict[int, dict[float, Point]] = {}
    for group, value in zip(report["groups"], values):
        own, result = best.setdefault(group["model"], {}), _interval(group["result"])
        own[value] = min(own.get(value, result), result)
    for group, color, dash in _drawn(report):
        own = best.pop(group["model"], {})
        points = [(value, *own[value]) for value in sorted(own) if math.isfinite(own[value][0])]
        if points:
            _line(axes, points, report["models"][group["model"]]["name"], color, dash, marker="o")
    if min(values) > 0 and max(values) >= 8 * min(values):
        axes.set_xscale("log")
    return _finish(axes, setting.split(".", 1)[-1], f"loss ({report['judged']})")


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


def _report(study: Source) -> dict[str, Any]:
    return (study if isinstance(study, Study) else Study(study)).report


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plumb.figures draws with matplotlib: pip install matplotlib") from error
    return pyplot.subplots(figsize=(5, 3.2), layout="constrained")[1]


def _drawn(report: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, Sequence[float]]]:
    """Returns the groups that the page draws at first with their colors and dashes, the best result first: all; or each
    model at its best setting; or, of many models, the best three, the baseline and the worst."""
    with open(os.path.join(os.path.dirname(__file__), "palette.json"), encoding="utf-8") as file:
        palette = json.load(file)
    groups, colors, dashes = report["groups"], palette["light"], palette["dashes"]
    order = sorted(range(len(groups)), key=lambda i: outcome_key(groups[i]["result"]))
    shown = list(range(len(groups)))
    if len(groups) > len(colors):
        bests = {model: next(i for i in order if groups[i]["model"] == model) for model in range(len(report["models"]))}
        ranked = [i for i in order if groups[i]["result"]["mean"] is not None]
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
