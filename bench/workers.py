# SPDX-License-Identifier: Apache-2.0
"""Processes that do work on request, and statistics of interleaving them. Imported by the measuring
scripts of this folder; standard library only."""
import os
import statistics
import subprocess
import sys
import time

# Threads of a process that has just finished its turn spin for a moment; this must not affect the next.
SETTLE_SECONDS = 0.4
TURN_SECONDS = 0.4  # a turn has as many steps as fit, and at least one


class Worker:
    """A step_server or one of *_steps.py: started once; each request and each answer is one line."""

    def __init__(self, name, command, environment=None):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})
        ready = self.process.stdout.readline().split()
        if len(ready) != 2 or ready[0] != "ready":
            sys.exit(f"{name} did not start: {' '.join(map(str, command))}")
        self.parameters = int(ready[1])

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            sys.exit(f"{self.name} ended")
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} ended while it was asked to {line}")
        return answer.split()

    def steps(self, n):
        seconds, tokens, flops, loss = map(float, self.ask(f"step {n}"))
        return {"seconds": seconds / n, "tokens": tokens / n, "flops": flops / n, "loss": loss}

    def warm_up(self, least=3, seconds=0.5):
        """Runs steps until compiling and first touches are over; sets the number of steps in a turn."""
        taken, last = 0.0, 0.0
        for done in range(10000):
            if done >= least and taken >= seconds:
                break
            last = self.steps(1)["seconds"]
            taken += last
        self.turn = max(1, int(TURN_SECONDS / last))

    def memory(self):
        return int(self.ask("memory")[0])

    def matmul(self, dtype):
        """Returns the machine's peak in FLOP/s: the best of three products."""
        return max(float(self.ask(f"matmul {dtype}")[0]) for _ in range(3))

    def read(self):
        return max(float(self.ask("read")[0]) for _ in range(2))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def profile(worker, steps):
    """Returns the ops of a mean step of a step_server: (name, in the graph, seconds, FLOPs, bytes)."""
    ops, line = [], " ".join(worker.ask(f"profile {steps}"))
    while line:
        # Names of stages contain spaces; the five figures after them do not.
        name, in_graph, _, *figures = line.rsplit(" ", 5)
        ops.append((name, in_graph == "1", *(float(figure) / steps for figure in figures)))
        line = worker.process.stdout.readline().strip()
    return ops


def interleave(workers, rounds, before=None):
    """Returns [{name: figures of its turn, "before": result of before()}], one per round; the order of
    the workers rotates."""
    results = []
    for i in range(rounds):
        turns = {"before": before()} if before else {}
        order = workers[i % len(workers):] + workers[: i % len(workers)]
        for worker in order:
            time.sleep(SETTLE_SECONDS)
            turns[worker.name] = worker.steps(worker.turn)
        results.append(turns)
    return results


def median(values):
    return statistics.median(values)


def quantile(values, q):
    values = sorted(values)
    place = q * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def spread(values):
    """Returns (median, p10, p90)."""
    return median(values), quantile(values, 0.1), quantile(values, 0.9)


def time_text(seconds):
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} us"
    if seconds < 1:
        return f"{1e3 * seconds:.{1 if seconds < 0.1 else 0}f} ms"
    return f"{1e3 * seconds:,.0f} ms"


def bytes_text(count):
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def table(head, rows, markdown):
    """Returns rows of text as a table, for a terminal or in Markdown."""
    if markdown:
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                  for i, (cell, w) in enumerate(zip(row, widths))).rstrip()
        for row in [head] + rows)
