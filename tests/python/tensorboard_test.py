# SPDX-License-Identifier: Apache-2.0
"""Tests of plumb.TensorBoard, `python -m plumb_runtime tensorboard` and Weights & Biases: they have the numbers of
metrics.csv. The variable PLUMB_EXAMPLES names the directory examples."""
from __future__ import annotations

import glob
import importlib.util
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import plumb_runtime as plumb

EXAMPLES = os.environ["PLUMB_EXAMPLES"]
NAMES = os.path.join(EXAMPLES, "data", "names.txt")
PRE = os.path.join(EXAMPLES, "why_normalise", "pre.pbtxt")
SHORT = {"model.n_layer": 1, "train.max_steps": 6, "train.eval_interval": 3, "train.data.val_fraction": 0.1}


def command(*words: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `python -m plumb_runtime`, which cannot import the module `without`."""
    code = f"import runpy, sys; sys.modules[{without!r}] = None; sys.argv = ['plumb', *sys.argv[1:]]; " \
           "runpy.run_module('plumb_runtime', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code, "tensorboard", *words], capture_output=True, text=True)


def scalars(directory: str) -> dict[str, dict[int, float]]:
    """Returns the values by tag and step that TensorBoard shows: it reads the files by name, and a file's START drops
    what earlier ones have of its first and later steps."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
    shown: dict[str, dict[int, float]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "events.out.tfevents.*"))):
        with open(path, "rb") as file:
            data = file.read()
        at = 0
        while at < len(data):
            size, = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12:at + 12 + size])
            at += 12 + size + 4
            if event.session_log.status == SessionLog.START:
                shown = {tag: {step: value for step, value in values.items() if step < event.step}
                         for tag, values in shown.items()}
            for value in event.summary.value:
                shown.setdefault(value.tag, {})[event.step] = value.simple_value
    return shown


class TensorBoardTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.run_directory = os.path.join(self.directory, "run")

    def train(self, resume: bool = False, stop_at: int = 0) -> plumb.Run:
        with plumb.TensorBoard(self.run_directory) as board:
            return plumb.train(PRE, NAMES, out=self.run_directory, set=SHORT, resume=resume, stop_at=stop_at,
                               callbacks=board)

    def assert_shows_the_metrics(self, directory: str, run: plumb.Run) -> None:
        columns, shown = run.metrics, scalars(directory)
        speeds = [tokens / seconds for tokens, seconds in zip(columns["tokens"], columns["seconds"])]
        for tag, values in (("train/loss", columns["loss"]), ("train/lr", columns["lr"]),
                            ("train/grad_norm", columns["grad_norm"]), ("train/tokens_per_second", speeds),
                            ("val/loss", columns["val_loss"])):
            expected = {step: value for step, value in zip(columns["step"], values) if value is not None}
            self.assertEqual(list(shown[tag]), list(expected), tag)
            for step, value in expected.items():
                self.assertTrue(math.isclose(shown[tag][step], value, rel_tol=1e-6), (tag, step))

    def test_a_run_shows_its_metrics_also_resumed(self) -> None:
        self.train(stop_at=4)
        self.assert_shows_the_metrics(self.run_directory, self.train(resume=True))
        self.assertEqual(len(glob.glob(os.path.join(self.run_directory, "events.*"))), 2)

    def test_a_growing_run_is_converted_again(self) -> None:
        run = plumb.train(PRE, NAMES, out=self.run_directory, set=SHORT)
        path = os.path.join(self.run_directory, "metrics.csv")
        with open(path, encoding="utf-8") as file:
            whole = file.read()
        out = os.path.join(self.directory, "out")
        for text in (whole[:len(whole) // 2], whole):  # the first ends in a line
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = command(self.run_directory, "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{text.count(chr(10)) - 1} steps", done.stdout)
        self.assert_shows_the_metrics(os.path.join(out, "run"), run)
        self.assertEqual(len(os.listdir(os.path.join(out, "run"))), 1)
        with open(path, "w", encoding="utf-8") as file:
            file.write(whole + "damaged\n")
        self.assertRegex(command(self.run_directory).stderr, r"metrics\.csv:8: is no row of metrics")
        os.rename(path, path.replace(".csv", ".jsonl"))
        self.assertRegex(command(self.run_directory).stderr, r"metrics\.jsonl: was written by an earlier plumb")

    def test_mistakes_are_errors(self) -> None:
        self.assertRegex(command(self.run_directory).stderr, "No such file.*metrics.csv")
        self.assertRegex(command("a/run", "b/run", "--out", "out").stderr, "two runs have the same name")


@unittest.skipUnless(importlib.util.find_spec("wandb"), "wandb is not installed")
class WeightsAndBiasesTest(unittest.TestCase):
    def test_an_offline_run_has_the_scalars(self) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]
        with tempfile.TemporaryDirectory() as directory:
            with wandb.init(project="plumb", mode="offline", dir=directory) as board:
                run = plumb.train(PRE, NAMES, out=os.path.join(directory, "run"), set=SHORT,
                                  callbacks=lambda step: board.log(step.scalars(), step=step.step, commit=True))
                logged = dict(board.summary)  # which a finished run has no more
            self.assertEqual(logged["_step"], 6)
            for tag, column in (("train/loss", "loss"), ("train/lr", "lr"), ("train/grad_norm", "grad_norm"),
                                ("val/loss", "val_loss")):
                self.assertAlmostEqual(logged[tag], run.metrics[column][-1], places=6)
            self.assertGreater(logged["train/tokens_per_second"], 0)
            self.assertEqual(len(glob.glob(os.path.join(directory, "wandb", "offline-run-*", "run-*.wandb"))), 1)


class WithoutTest(unittest.TestCase):
    def test_the_error_names_the_package_to_install(self) -> None:
        done = command("run", without="tensorboardX")
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install tensorboardX", done.stderr)


if __name__ == "__main__":
    try:
        import tensorboardX  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        done = unittest.main(argv=[sys.argv[0], "WithoutTest", "WeightsAndBiasesTest"], exit=False)
        if not done.result.wasSuccessful():
            sys.exit(1)
        print("tensorboardX is not installed: the rest is not tried", file=sys.stderr)
        sys.exit(77)
    done = unittest.main(exit=False)
    sys.exit(0 if done.result.wasSuccessful() else 1)  # wandb needs an integer
