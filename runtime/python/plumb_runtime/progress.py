# SPDX-License-Identifier: Apache-2.0
"""Displays for people: progress of long calls, and tables in notebooks."""
from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Optional, TextIO


def duration(seconds: float) -> str:
    """Returns a duration such as "42 s", "3:05" or "2:10:00"."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    if minutes == 0:
        return f"{rest} s"
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of texts as HTML; without `columns` one without a head."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    cells = ["".join(f"<td style='white-space: nowrap'>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}{body}</table>"


def _display() -> Optional[Any]:
    """Returns IPython's display() if a notebook runs this code."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return ipython.display.display if ipython is not None and hasattr(shell, "kernel") else None


LOG_SECONDS = 30.0  # time between the lines in a log


class Line:
    """A line of text that is written again in place of the last one: on a terminal, or in a notebook as one output that
    is updated. Elsewhere, as in a log, a new line is written after every LOG_SECONDS. `shows`: True to write it
    as on a terminal everywhere, False to write nothing. The line is renewed after at least `seconds`."""

    def __init__(self, shows: Optional[bool] = None, stream: Optional[TextIO] = None, seconds: float = 0.2) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._display = _display() if stream is None else None
        self._output: Any = None  # of the notebook, from the first text on
        is_watched = self._display is not None or self._stream.isatty()
        self._logs = shows is None and not is_watched
        self._shows = shows is not False
        self._seconds, self._shown = (LOG_SECONDS, time.monotonic()) if self._logs else (seconds, 0.0)
        self._last, self._written, self._width = "", "", 0

    def show(self, text: str) -> None:
        """Shows a text, unless the last one has just been shown."""
        self._last = text
        if self._shows and time.monotonic() - self._shown >= self._seconds:
            self._shown = time.monotonic()
            self._write()

    def _write(self) -> None:
        self._written = self._last
        if self._logs:
            self._stream.write(self._last + "\n")
            self._stream.flush()
        elif self._output is not None:
            self._output.update({"text/plain": self._last}, raw=True)
        elif self._display is not None:
            self._output = self._display({"text/plain": self._last}, raw=True, display_id=True)
        else:
            self._stream.write("\r" + self._last.ljust(self._width))
            self._stream.flush()
            self._width = len(self._last)

    def end(self) -> None:
        """Shows the last text, and ends the line. Adds nothing to a log that has no line yet."""
        if self._logs and self._written in ("", self._last):
            return
        if self._shows and self._last:
            self._write()
            if self._display is None and not self._logs:
                self._stream.write("\n")
            self._last, self._written, self._width = "", "", 0


class Progress:
    """Shows the steps of a run in one line, on a terminal or in a notebook, and elsewhere in a new line every 30 s:

        with plumb.Progress(300) as progress:
            trainer.run(batches, progress)

    `total`: the recipe's max_steps, 0 if it is unknown. `stream`: sys.stderr by default. The line is renewed after at
    least `seconds`."""

    def __init__(self, total: int = 0, *, stream: Optional[TextIO] = None, seconds: float = 0.2,
                 shows: Optional[bool] = None) -> None:
        self._total = total
        self._line = Line(shows, stream, seconds)
        self._first: Optional[tuple[int, float]] = None  # step and time of the first call

    def __call__(self, info: Any) -> None:
        """Receives the results of a step, as on_step of Trainer.run: a StepInfo or a RunStep."""
        now = time.monotonic()
        if self._first is None:
            self._first = info.step, now
        first, begin = self._first
        text = f"step {info.step}{f' of {self._total}' if self._total else ''}, loss {info.loss:.3f}"
        if info.step > first and now > begin:
            speed = (info.step - first) / (now - begin)
            text += f", {speed:.3g} steps/s"
            if self._total > info.step:
                text += f", {duration((self._total - info.step) / speed)} left"
        self._line.show(text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Shows the last step, and ends the line."""
        self._line.end()
