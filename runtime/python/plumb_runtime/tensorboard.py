# SPDX-License-Identifier: Apache-2.0
"""Event files of runs for TensorBoard, written by the package tensorboardX, which only these functions import."""
from __future__ import annotations

import glob
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional, Union

from .runs import RunStep, read_metrics

Path = Union[str, "os.PathLike[str]"]


class TensorBoard:
    """A callback of train() that writes event files into `directory` while a run trains:

        with plumb.TensorBoard("runs/pre") as board:
            plumb.train(model, data, out="runs/pre", callbacks=board)

    The scalars are train/loss, train/lr, train/grad_norm, train/tokens_per_second and val/loss. A resumed run needs a
    new TensorBoard, with the same directory, whose curves continue at the checkpoint. Raises ImportError if
    tensorboardX is not installed."""

    def __init__(self, directory: Path) -> None:
        self._directory = os.fspath(directory)
        try:
            self._module = importlib.import_module("tensorboardX")
        except ImportError as error:
            raise ImportError("event files for TensorBoard need the package tensorboardX: pip install tensorboardX"
                              ) from error
        self._writer: Any = None  # opened by the first step

    def __call__(self, step: RunStep, time: Optional[float] = None) -> None:
        """Writes the scalars of a step that was at `time`, in seconds since 1970; None: now."""
        if self._writer is None:
            # TensorBoard drops events of steps from purge_step on in earlier files. The step in the file's name
            # distinguishes files that begin in one second.
            self._writer = self._module.SummaryWriter(self._directory, purge_step=step.step, flush_secs=2,
                                                      filename_suffix=f".{step.step:010}.plumb")
        for tag, value in step.scalars().items():
            self._writer.add_scalar(tag, value, step.step, time)

    def close(self) -> None:
        """Writes the last events."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def convert(run: Path, directory: Path) -> int:
    """Writes the steps in metrics.csv of a run, which may be training, as an event file in place of those that plumb
    wrote there before. Returns the number of steps. Raises the errors of read_metrics."""
    board = TensorBoard(directory)
    path = os.path.join(os.fspath(run), "metrics.csv")
    columns = read_metrics(path)
    steps = [RunStep(step, 0, loss, lr, norm, tokens, seconds, val_loss, "", ()) for (
        step, loss, lr, norm, tokens, seconds, val_loss) in zip(*columns.values())]
    time = os.path.getmtime(path) - sum(step.seconds for step in steps)
    for old in glob.glob(os.path.join(glob.escape(os.fspath(directory)), "events.out.tfevents.*.plumb")):
        os.remove(old)
    with board:
        for step in steps:
            time += step.seconds
            board(step, time)
    return len(steps)


def main(words: Sequence[str]) -> None:
    """Runs `plumb tensorboard` with these arguments."""
    import argparse
    parser = argparse.ArgumentParser(prog="plumb tensorboard", description=(
        "Converts metrics.csv of runs, which may be training, to event files for TensorBoard. Replaces the files of "
        "an earlier conversion."))
    parser.add_argument("runs", metavar="RUN", nargs="+", help="directory of a run")
    parser.add_argument("--out", metavar="DIR", help="write into DIR/<name of RUN>. Default: into RUN")
    options = parser.parse_args(words)
    names = [os.path.basename(os.path.abspath(run)) for run in options.runs]
    if options.out is not None and len(set(names)) < len(names):
        parser.error("--out: two runs have the same name; convert them with different --out")
    try:
        for run, name in zip(options.runs, names):
            out = run if options.out is None else os.path.join(options.out, name)
            print(f"{out}: {convert(run, out):,} steps")
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"plumb tensorboard: {error}")
