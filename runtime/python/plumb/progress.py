# SPDX-License-Identifier: Apache-2.0
"""Progress of a run, for people who watch it."""
from __future__ import annotations

import sys
import time
from typing import Optional, TextIO

from .training import StepInfo


class Progress:
    """Shows the steps of a run in one line, on a terminal or in a notebook, and nothing elsewhere:

        with plumb.Progress(300) as progress:
            trainer.run(batches, progress)

    `total`: the recipe's max_steps, 0 if it is unknown. `stream`: sys.stderr by default. The line is renewed after at
    least `seconds`."""

    def __init__(self, total: int = 0, *, stream: Optional[TextIO] = None, seconds: float = 0.2) -> None:
        self._total, self._seconds = total, seconds
        self._stream = stream if stream is not None else sys.stderr
        self._shows = self._stream.isatty() or ("ipykernel" in sys.modules and self._stream is sys.stderr)
        self._first: Optional[tuple[int, float]] = None  # step and time of the first call
        self._shown = 0.0
        self._width = 0
        self._last: Optional[StepInfo] = None

    def __call__(self, info: StepInfo) -> None:
        """Receives the results of a step, as on_step of Trainer.run."""
        now = time.monotonic()
        self._last = info
        if self._first is None:
            self._first = info.step, now
        if self._shows and now - self._shown >= self._seconds:
            self._shown = now
            self._show()

    def _show(self) -> None:
        assert self._last is not None and self._first is not None
        step, (first, begin) = self._last.step, self._first
        text = f"step {step}{f' of {self._total}' if self._total else ''}, loss {self._last.loss:.3f}"
        elapsed = time.monotonic() - begin
        if step > first and elapsed > 0:
            speed = (step - first) / elapsed
            text += f", {speed:.3g} steps/s"
            if self._total > step:
                text += f", {(self._total - step) / speed:.0f} s left"
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Shows the last step, and ends the line."""
        if self._shows and self._last is not None:
            self._show()
            self._stream.write("\n")
