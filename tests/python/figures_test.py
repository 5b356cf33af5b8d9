# SPDX-License-Identifier: Apache-2.0
"""Tests of plumb.figures with the data of a small study. Exits with 77 if matplotlib, without which most are skipped,
is not installed."""
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

import plumb_runtime as plumb

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
with open(os.path.join(os.path.dirname(plumb.__file__), "palette.json"), encoding="utf-8") as _file:
    PALETTE = json.load(_file)


def report() -> dict[str, Any]:
    """Returns two models at two learning rates, with two runs each, the last of which diverged."""
    rates = ("0.001", "0.01")
    groups = [{"name": f"{name}, learning_rate={rate}", "model": model, "cell": cell, "runs": [],
               "settings": {"train.learning_rate": rate, "model.mlp.activation": "RELU"}, "steps": [1, 2, 4],
               "tokens_per_step": 10.0, "flops_per_token": 3.0, "probes": None,
               "result": {"mean": 2.0 + model - 0.5 * cell, "low": 1.0, "high": 3.0, "runs": 2}}
              for model, name in enumerate(("pre", "post")) for cell, rate in enumerate(rates)]
    groups[0]["probes"] = {"runs": 1, "steps": [1, 4], "layers": ["layers.0", "layers.1"], "series": [
        {"name": "gradient norm", "log": True, "largest": False, "values": [[1.0, 3.0], [4.0, None]]}]}
    runs: list[dict[str, Any]] = []
    for i, group in enumerate(groups):
        for loss in ([4.0, 2.0, 1.0], [6.0, 4.0, 3.0]):
            group["runs"].append(len(runs))
            runs.append({"group": i, "status": "finished", "loss": loss})
    runs[-1].update(status="diverged", loss=[6.0, None])
    paired = [{"metric": metric, "cell": cell, "group": 2 + cell, "against": cell, "mean": mean, "low": low, "high": high}
              for metric in ("last 100", "first 50") for cell, (mean, low, high) in enumerate(
                  ((0.5, 0.25, 0.75), (-0.125, None, None)))]
    groups[3]["result"] = {"mean": 1.5, "low": None, "high": None, "runs": 1}
    return {"steps": 4, "judged": "last 100", "models": [{"name": "pre"}, {"name": "post"}], "groups": groups,
            "runs": runs, "best": None, "paired": paired}


class FiguresTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = temporary.name
        self.write(report())

    def write(self, data: dict[str, Any]) -> None:
        with open(os.path.join(self.path, "report.json"), "w", encoding="utf-8") as file:
            json.dump(data, file)

    def test_without_matplotlib_the_error_says_how_to_install_it(self) -> None:
        with mock.patch.dict(sys.modules, {"matplotlib.pyplot": None}):
            with self.assertRaisesRegex(ImportError, "pip install matplotlib"):
                plumb.figures.ranking(self.path)


@unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed")
class DrawnTest(FiguresTest):
    def setUp(self) -> None:
        super().setUp()
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot
        self.addCleanup(matplotlib.pyplot.close, "all")

    def lines(self, axes: Any) -> dict[str, tuple[list[float], list[float]]]:
        axes.figure.canvas.draw()
        return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}

    def test_curves_are_means_of_smoothed_runs(self) -> None:
        axes = plumb.figures.curves(self.path, x="tokens", smoothing=2)
        lines = self.lines(axes)
        self.assertEqual(list(lines), ["pre, learning_rate=0.01", "pre, learning_rate=0.001",
                                       "post, learning_rate=0.001", "post, learning_rate=0.01"])  # one run ended
        xs, ys = lines["pre, learning_rate=0.01"]
        self.assertEqual(xs, [10, 20, 40])
        # The third loss is the mean of two steps, so it weighs 1 - 1/4 and the past 1/4.
        first = [4.0, (4 / 4 + 2 / 2) / (3 / 4), ((4 / 4 + 2 / 2) / 4 + 1 * 3 / 4) / (3 / 4 / 4 + 3 / 4)]
        for y, value in zip(ys, first):
            self.assertAlmostEqual(y, value + 1)
        self.assertEqual(lines["post, learning_rate=0.01"][1][0], 4.0)  # without the run that diverged
        looks = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
        self.assertEqual(looks["pre, learning_rate=0.001"], (PALETTE["light"][0], "-"))
        self.assertEqual(looks["post, learning_rate=0.001"][0], PALETTE["light"][2])
        self.assertEqual(len(axes.collections), 4)
        pdf = os.path.join(self.path, "curves.pdf")
        plumb.figures.save(axes, pdf)
        with open(pdf, "rb") as file:
            content = file.read()
        self.assertIn(b"/FontFile2", content)  # TrueType
        self.assertNotIn(b"/Type3", content)
        if shutil.which("pdffonts"):
            fonts = subprocess.run(["pdffonts", pdf], capture_output=True, text=True, check=True).stdout.splitlines()[2:]
            self.assertTrue(fonts)
            for font in fonts:
                self.assertRegex(font, r"TrueType +\S+ +yes yes")
        with self.assertRaisesRegex(ValueError, "no axis 'hours' for .*; there are steps, tokens, FLOPs"):
            plumb.figures.curves(self.path, x="hours")

    def test_a_ranking_has_the_best_settings_or_all_groups(self) -> None:
        def names(axes: Any) -> list[str]:
            return [label.get_text() for label in axes.get_yticklabels()]

        self.assertEqual(names(plumb.figures.ranking(self.path))[-1][:3], "pre")
        self.assertEqual(len(names(plumb.figures.ranking(self.path))), 4)
        data = report()
        data["best"] = {"models": [{"cell": 1, "mean": 3.0, "low": 2.0, "high": 4.0, "runs": 3, "diverged": 0},
                                   {"cell": 0, "mean": 2.0, "low": 1.0, "high": 4.0, "runs": 3, "diverged": 0}]}
        self.write(data)
        axes = plumb.figures.ranking(self.path)
        self.assertEqual(names(axes), ["pre, learning_rate=0.01", "post, learning_rate=0.001"])
        data["best"]["models"][1].update(runs=2, diverged=1)  # worse than any mean
        self.write(data)
        axes = plumb.figures.ranking(self.path)
        self.assertEqual(names(axes), ["post, learning_rate=0.001", "pre, learning_rate=0.01"])

    def test_a_sweep_has_a_line_for_each_model(self) -> None:
        axes = plumb.figures.sweep(self.path, "train.learning_rate")
        self.assertEqual(self.lines(axes), {"pre": ([0.001, 0.01], [2.0, 1.5]), "post": ([0.001, 0.01], [3.0, 1.5])})
        self.assertEqual((axes.get_xscale(), axes.get_xlabel()), ("log", "learning_rate"))
        with self.assertRaisesRegex(ValueError, "give a setting; the study has train.learning_rate, model.mlp.activation"):
            plumb.figures.sweep(self.path)
        for unknown in ("model.mlp.activation", "train.seed"):
            with self.assertRaisesRegex(KeyError, "with numbers; the settings are: train.learning_rate, model.mlp"):
                plumb.figures.sweep(self.path, unknown)

    def test_differences_are_those_from_the_baseline(self) -> None:
        axes = plumb.figures.differences(self.path)
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()],
                         ["post, learning_rate=0.001", "post, learning_rate=0.01"])
        self.assertEqual(axes.get_xlabel(), "loss − pre (last 100)")
        segments = [one.get_segments() for one in axes.collections]
        self.assertEqual([list(point) for point in segments[0][0]], [[0.25, 0], [0.75, 0]])
        data = report()
        data["best"] = {"models": [{"cell": 1}, {"cell": 0}], "paired": [
            {"model": 1, "against": 0, "mean": 0.25, "low": 0.0, "high": 0.5}]}
        self.write(data)
        axes = plumb.figures.differences(self.path)
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], ["post, learning_rate=0.001"])
        data["best"]["paired"][0].update(mean=None)
        self.write(data)
        with self.assertRaisesRegex(ValueError, "no difference from the baseline"):
            plumb.figures.differences(self.path)

    def test_without_a_grid_there_are_figures(self) -> None:
        data = report()
        data["groups"] = [dict(data["groups"][2 * i], name=name, cell=0, settings={})
                          for i, name in enumerate(("pre", "post"))]
        data["runs"], data["paired"] = data["runs"][:6], [dict(data["paired"][0], group=1, against=0)]
        self.write(data)
        for draw in (plumb.figures.curves, plumb.figures.ranking, plumb.figures.differences):
            draw(self.path).figure.canvas.draw()
        with self.assertRaisesRegex(ValueError, "the study has none, without a grid"):
            plumb.figures.sweep(self.path)
        with self.assertRaisesRegex(KeyError, "no setting 'a'; the settings are: none, without a grid"):
            plumb.figures.heat_map(self.path, "a", "b")

    def test_a_heat_map_has_the_best_of_two_settings(self) -> None:
        data = report()
        for i, width in enumerate(("8", "16", "8", "16")):
            data["groups"][i]["settings"]["model.d_model"] = width
        self.write(data)
        axes = plumb.figures.heat_map(self.path, "train.learning_rate", "model.d_model")
        self.assertEqual([label.get_text() for label in axes.get_xticklabels()], ["0.001", "0.01"])
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], ["8", "16"])
        self.assertEqual(axes.get_images()[0].get_array().tolist(), [[2.0, None], [None, 1.5]])  # without the other model
        self.assertEqual((axes.get_title(), [text.get_text() for text in axes.texts]), ("pre", ["2.000", "1.500"]))
        with self.assertRaisesRegex(KeyError, "no model 'peri'; there are pre, post"):
            plumb.figures.heat_map(self.path, "train.learning_rate", "model.d_model", model="peri")

    def test_a_ladder_joins_studies_and_results(self) -> None:
        results = os.path.join(self.path, "depth_16.json")
        with open(results, "w", encoding="utf-8") as file:
            json.dump({"paired": {"post": {"mean": 0.5, "low": 0.25, "high": 0.75},
                                  "peri": {"mean": None, "low": None, "high": None}}}, file)
        data = report()
        data["best"] = {"models": [{"cell": 1}, {"cell": 0}], "paired": [
            {"model": 1, "against": 0, "mean": 0.25, "low": 0.0, "high": 0.5}]}
        data["groups"][2]["name"] = "post"
        self.write(data)
        axes = plumb.figures.ladder({16: results, 2: self.path})
        lines = self.lines(axes)
        self.assertEqual(lines["post"], ([2, 16], [0.25, 0.5]))
        self.assertEqual((axes.get_xscale(), len(axes.collections)), ("log", 1))
        with self.assertRaisesRegex(KeyError, "no study has a difference of 'peri'; there are post"):
            plumb.figures.ladder({16: results}, models=["peri"])

    def test_probes_over_layers_and_steps(self) -> None:
        axes = plumb.figures.probe(self.path, "gradient norm")
        self.assertEqual(self.lines(axes), {"pre, learning_rate=0.001": ([0], [4.0])})
        self.assertEqual(axes.get_yscale(), "log")
        steps = plumb.figures.probe(self.path, "gradient norm", x="FLOPs", axes=axes)
        self.assertIs(steps, axes)
        self.assertEqual(list(steps.get_lines()[-1].get_xdata()), [30, 120])
        self.assertEqual(list(steps.get_lines()[-1].get_ydata()), [2, 4])
        with self.assertRaisesRegex(KeyError, "no probe 'entropy'; there are gradient norm"):
            plumb.figures.probe(self.path, "entropy")

    def test_many_groups_have_the_colors_of_the_page(self) -> None:
        data = report()
        data["groups"] = [dict(data["groups"][i % 4], name=f"g{i}", model=i % 2,
                               result={"mean": 9.0 - i, "low": None, "high": None, "runs": 2}) for i in range(10)]
        self.write(data)
        self.assertEqual([(line.get_label(), line.get_color()) for line in plumb.figures.curves(self.path).get_lines()],
                         [("g9", PALETTE["light"][1]), ("g8", PALETTE["light"][0])])


if __name__ == "__main__":
    found = unittest.main(exit=False)
    if found.result.wasSuccessful() and not HAS_MATPLOTLIB:
        print("skipped: matplotlib is not installed")
        sys.exit(77)
    sys.exit(not found.result.wasSuccessful())
