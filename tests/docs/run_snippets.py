#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the code on the pages of the tree: commands, transcripts, models, Python. Each page has a
scratch directory, which seems to hold the top of the source tree (read-only) and build/quick, and
one shell, so that a command finds the results of those above it.

    run_snippets.py --build BUILD [--source DIR] [--not-run FILE] [--update] [--show] [--jobs N] [PAGE.md..]

    ```console    `$ ` commands and their output: words and structure must match. Numbers may differ if
                  they depend on the processor or the day (VARIES). `...` stands for any lines,
                  or within a line for any text. Lines of progress may be missing. A command fails
                  if and only if an `error:` is shown. If no output is shown, any is accepted.
    ```sh         commands; an indented block that begins like a command counts, too
    ```pbtxt      a model, or fields that are added to a small model; it must pass `plumb describe`
    ```python     a program
    ```text, ```ebnf, ```json   figures; they must not hold commands

A comment in the line before a block changes that:

    <!-- not run: WHY -->          listed in --not-run FILE, which must hold exactly these (--update writes it)
    <!-- run by: TEST -->          run by another test of that name
    <!-- output varies: WHY -->    only the number of lines is compared
    <!-- file: NAME -->            the block is first written to this file; if it is a model, it is parsed

A page that begins with <!-- page run by: TEST --> is left to that test.
"""
import argparse
import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pages

# Maximum seconds of a command on a page, on a machine that also runs other tests.
SECONDS = 120
# Pattern of lines whose numbers depend on the processor, on rounding or on the day. Lines that
# consist of numbers count as well. Losses must be close.
VARIES = re.compile(
    r"\bloss\b|^time |tokens/s|GFLOP|GB/s|\bthreads?\b|scratch|^ *peak |\bgradient|^ *gain |slope|^ *growth |"
    r"first 50|last 100|max of first|collapsed in|[±−]")
NEAR = 0.10
NUMBER = re.compile(r"<?[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
PROGRESS = re.compile(r"^(?:step \d+(?:/\d+)? |.*, seed \d+: loss .* after \d+ steps)")
END = "\x1eend of command "

PLACEMENT_FIELDS = r"name|extends|let|begin|each|end|inside|learned|linear|slot|init"
SMALL_MODEL = {"n_layer": "4", "n_head": "2", "d_model": "16", "context_length": "8", "vocab_size": "27"}


class Failure(Exception):
    pass


def shrunk(line):
    return " ".join(line.split())


def losses(line):
    return [float(number) for number in re.findall(r"loss:? +(\d+\.\d+)", line)]


def same_line(shown, got):
    shown, got = shrunk(shown), shrunk(got)
    if shown == got:
        return True
    if "..." in shown:
        pattern = ".*".join(re.escape(NUMBER.sub("#", part)) for part in shown.split("..."))
        return re.fullmatch(pattern, NUMBER.sub("#", got)) is not None
    if not VARIES.search(shown) and re.search(r"[A-Za-z]", NUMBER.sub("#", shown)):
        return False
    bare = lambda text: re.sub(r"#[kMG]\b", "#", NUMBER.sub("#", text)).replace("threads", "thread")
    if bare(shown) != bare(got):
        return False
    return all(abs(a - b) <= NEAR * max(a, b) for a, b in zip(losses(shown), losses(got)))


def same_output(shown, got):
    """Returns (True, "") if the output `got` matches the shown lines, else (False, reason)."""
    if not any(PROGRESS.match(line) for line in shown):
        got = [line for line in got if not PROGRESS.match(line)]
    if not shown:
        return True, ""
    # reached holds each j such that the shown lines so far may end at got[j].
    reached = {0}
    for index, line in enumerate(shown):
        if line.strip() == "...":
            reached = set(range(min(reached), len(got) + 1))
            continue
        after = {j + 1 for j in reached if j < len(got) and same_line(line, got[j])}
        if not after:
            return False, f"shown line {index + 1} is not what was printed: {line}"
        reached = after
    if len(got) not in reached:
        return False, f"more was printed than is shown: {got[max(reached)]}"
    return True, ""


class Shell:
    """One bash process for a page, so that `cd` and `export` persist."""

    def __init__(self, directory, environment):
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=directory, env=environment, text=True, errors="replace",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, command):
        """Returns (exit code, lines) of a command."""
        self.process.stdin.write(
            f"{{ {command}\n}} < /dev/null\nprintf '\\n%s%d\\n' '{END}' $?\n")
        self.process.stdin.flush()
        # A timer ends the shell if a command hangs, which also ends the wait for output.
        timer = threading.Timer(SECONDS, self.close)
        timer.start()
        lines = []
        try:
            for line in self.process.stdout:
                if line.startswith(END):
                    while lines and not lines[-1].strip():
                        lines.pop()
                    return int(line[len(END):]), lines
                lines.append(line.rstrip("\n"))
        finally:
            timer.cancel()
        raise Failure(f"{command}\ntook more than {SECONDS} s, or ended the shell:\n" + "\n".join(lines[-20:]))

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def commands_of(block):
    """Returns [(command, lines shown)] of a transcript."""
    found, lines, i = [], block.lines, 0
    while i < len(lines):
        if not lines[i].startswith("$ "):
            if not found:
                raise Failure("a transcript begins with `$ `")
            found[-1][1].append(lines[i])
            i += 1
            continue
        command = lines[i][2:]
        while command.endswith("\\") and i + 1 < len(lines):
            i += 1
            command += "\n" + re.sub(r"^> ", "", lines[i])
        heredoc = re.search(r"<< *'?(\w+)'?", command)
        if heredoc:
            while i + 1 < len(lines):
                i += 1
                command += "\n" + re.sub(r"^> ?", "", lines[i])
                if command.endswith("\n" + heredoc[1]):
                    break
        found.append((command, []))
        i += 1
    for _, shown in found:
        while shown and not shown[-1].strip():
            shown.pop()
    return found


def top_level(text):
    """Returns (name, start, end) of every top-level field of the text format."""
    depth, fields, name, start = 0, [], None, 0
    token = re.compile(r'#[^\n]*|"(?:[^"\\]|\\.)*"|[{}]|([A-Za-z_]\w*)\s*(?=[:{])')
    for match in token.finditer(text):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
        elif match[1] and depth == 0:
            if name:
                fields.append((name, start, match.start()))
            name, start = match[1], match.start()
    if name:
        fields.append((name, start, len(text)))
    return fields


def models_of(text):
    """Returns complete models that contain the fields of a block."""
    fields = top_level(text)
    names = {name for name, _, _ in fields}
    if not names:
        raise Failure("no field of a model")
    is_rule = lambda name, value: re.fullmatch(PLACEMENT_FIELDS, name) or (
        name == "block" and re.match(r"block\s*:", value))
    rules = [text[a:b] for name, a, b in fields if is_rule(name, text[a:b])]
    # `name` and `init` alone may be fields of other messages.
    if rules and names & {"each", "begin", "end", "let", "inside", "extends", "learned"} or any(
            re.match(r"block\s*:", rule) for rule in rules):
        rest = "".join(text[a:b] for name, a, b in fields if not is_rule(name, text[a:b]))
        body = "".join(rules)
        if not re.search(r"^name", body):
            body = 'name: "shown"\n' + body
        if not re.search(r"\b(each|block|extends)\s*:", body):
            body += '\neach: "x = x + f(norm(x))"\nend: "x = norm(x)"\n'
        text = f"{rest}\nplacement {{\n{body}\n}}\n"
        fields = top_level(text)
        names = {name for name, _, _ in fields}
    for name, value in SMALL_MODEL.items():
        if name not in names:
            text += f"\n{name}: {value}\n"
    if names & {"block", "layers"}:
        return [text]
    # No block names the placements, so each gets a model.
    placements = re.findall(r'\bplacement\s*\{\s*name:\s*"(\w+)"', text) or ["pre"]
    return [f'{text}\nblock {{ placement: "{name}" norm: "rms_norm" }}\n' for name in placements]


class Runner:
    def __init__(self, args):
        self.args = args
        self.registered = set()
        for folder, _, files in os.walk(os.path.join(args.source, "tests")):
            if "CMakeLists.txt" in files:
                with open(os.path.join(folder, "CMakeLists.txt"), encoding="utf-8") as file:
                    self.registered |= set(re.findall(r"\w+", file.read()))

    def environment(self, directory):
        kept = {name: value for name, value in os.environ.items()
                if name not in ("PLUMB_PLUGIN_PATH", "CFLAGS", "LDFLAGS", "CC")}
        return dict(kept, PATH=os.path.join(self.args.build, "bin") + os.pathsep + os.environ["PATH"],
                    HOME=directory, NO_COLOR="1", LC_ALL="C.UTF-8", BROWSER="true", PYTHONDONTWRITEBYTECODE="1")

    def make_scratch(self, directory):
        for name in os.listdir(self.args.source):
            if name not in ("build", "runs", "studies") and not name.startswith("."):
                os.symlink(os.path.join(self.args.source, name), os.path.join(directory, name))
        # These are the files that a user of a build reads. Without the cache no command can
        # configure it again.
        os.makedirs(os.path.join(directory, "build", "quick"))
        for name in ("bin", "lib", "cmake_install.cmake"):
            os.symlink(os.path.join(self.args.build, name), os.path.join(directory, "build", "quick", name))

    def check_test(self, name):
        if name not in self.registered:
            raise Failure(f"no test {name} in tests/**/CMakeLists.txt")

    def run_console(self, shell, block):
        for command, shown in commands_of(block):
            code, got = shell.run(command)
            if self.args.show:
                print(f"$ {command}\n" + "\n".join(got), flush=True)
            must_fail = any(line.startswith("error:") for line in shown)
            if (code != 0) != must_fail:
                raise Failure(f"$ {command}\nexit code {code}:\n" + "\n".join(got[-30:]))
            if "output varies" in block.said:
                if len(shown) != len([line for line in got if not PROGRESS.match(line)]):
                    raise Failure(f"$ {command}\nprinted {len(got)} lines, {len(shown)} are shown:\n"
                                  + "\n".join(got))
                continue
            good, why = same_output(shown, got)
            if not good:
                raise Failure(f"$ {command}\n{why}\nprinted:\n" + "\n".join(got))

    def run_shell(self, shell, block):
        # Commands run one by one, as typed. A continued line or a here-document is one command.
        for command, _ in commands_of(self.as_transcript(block)):
            code, got = shell.run(command)
            if code != 0:
                raise Failure(f"{command}\nexit code {code}:\n" + "\n".join(got[-30:]))

    @staticmethod
    def as_transcript(block):
        copy = pages.Block("console", block.line, block.said)
        more = end = None
        for line in block.lines:
            if not line.strip() and end is None:
                continue
            copy.lines.append(line if more or end else "$ " + line)
            if end is not None:
                end = None if line == end else end
                continue
            more = line.endswith("\\")
            heredoc = re.search(r"<< *'?(\w+)'?", line)
            end = heredoc[1] if heredoc else None
        return copy

    def parse_models(self, directory, shell, block):
        if "file" in block.said and "n_layer" in block.text():
            # The model must be complete, except for a vocabulary size that comes from data.
            models = [block.text()]
            if "vocab_size" not in models[0]:
                models[0] += f"vocab_size: {SMALL_MODEL['vocab_size']}\n"
        else:
            models = models_of(block.text())
        for number, model in enumerate(models):
            path = os.path.join(directory, f"shown-{block.line}-{number}.pbtxt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(model)
            code, got = shell.run(f"plumb describe '{path}'")
            if code != 0:
                raise Failure("\n".join(got) + "\n\nthe model:\n" + model)

    def run_block(self, directory, shell, block):
        """Checks a block. Returns "run", "shown", "test" or "not run"."""
        if "run by" in block.said:
            self.check_test(block.said["run by"])
            return "test"
        if "not run" in block.said:
            return "not run"
        if "file" in block.said:
            path = os.path.join(directory, block.said["file"])
            with open(path, "w", encoding="utf-8") as file:
                file.write(block.text())
        if block.language == "console":
            self.run_console(shell, block)
        elif block.language == "sh" or (block.language == "" and pages.COMMAND.match(block.first())):
            self.run_shell(shell, block)
        elif block.language == "pbtxt":
            if "file" in block.said and block.said["file"].startswith("train"):
                return "run"  # a recipe, which a block below reads
            self.parse_models(directory, shell, block)
        elif block.language == "python":
            path = os.path.join(directory, f"shown-{block.line}.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(block.text())
            code, got = shell.run(f"python3 '{path}'")
            if code != 0:
                raise Failure("\n".join(got))
        elif "file" in block.said:
            pass
        elif block.language in ("text", "ebnf", "json", ""):
            if block.has_commands():
                raise Failure("commands in a block that is not run: make it ```console or ```sh, or say why not")
            return "shown"
        else:
            raise Failure(f"a block of {block.language}, which nothing runs: say <!-- run by: TEST --> or "
                          "<!-- not run: WHY -->")
        return "run"

    def run_page(self, path):
        """Returns (name, counts, [not run], [failures], seconds)."""
        name = os.path.relpath(path, self.args.source)
        page, began = pages.Page(path), time.monotonic()
        counts, not_run, failures = {}, [], []
        if "page run by" in page.said:
            try:
                self.check_test(page.said["page run by"])
                counts["test"] = len(page.blocks)
            except Failure as failure:
                failures.append(f"{name}: {failure}")
            return name, counts, not_run, failures, 0.0
        directory = tempfile.mkdtemp(prefix="plumb-docs-")
        try:
            self.make_scratch(directory)
            shell = Shell(directory, self.environment(directory))
            for block in page.blocks:
                if failures and block.has_commands():
                    break  # later blocks may need the failed one
                try:
                    became = self.run_block(directory, shell, block)
                except Failure as failure:
                    failures.append(f"{name}:{block.line}: {failure}")
                    continue
                counts[became] = counts.get(became, 0) + 1
                if became == "not run":
                    command = re.sub(r"^\$ | +#.*| *\\$", "", block.first())
                    not_run.append(f"{name}: {command}: {block.said['not run']}")
            shell.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return name, counts, not_run, failures, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", default=os.path.join(here, "..", ".."))
    parser.add_argument("--not-run", help="what is not run, and why: printed, and held against the pages")
    parser.add_argument("--update", action="store_true", help="write it")
    parser.add_argument("--show", action="store_true", help="print what the commands of transcripts print")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("pages", nargs="*")
    args = parser.parse_args()
    args.build, args.source = os.path.realpath(args.build), os.path.realpath(args.source)
    os.umask(0o022)  # plumb refuses plugins that others may write to
    chosen = [os.path.realpath(page) for page in args.pages]
    if not chosen:
        # The template's page belongs to a project of its own, which sdk_project_builds builds.
        chosen = [page for page in pages.markdown_files(args.source) if "plugins/template/" not in page]
    runner = Runner(args)
    not_run, failures = [], []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, counts, left, failed, seconds in pool.map(runner.run_page, chosen):
            did = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            print(f"{name}: {did or 'no blocks'}, {seconds:.1f} s", flush=True)
            not_run += left
            failures += failed
    if args.not_run and not args.pages:
        if args.update:
            with open(args.not_run, "w", encoding="utf-8") as file:
                file.write("\n".join(not_run) + "\n")
        with open(args.not_run, encoding="utf-8") as file:
            listed = file.read().splitlines()
        print("\nnot run:\n" + "\n".join(listed))
        failures += [f"not in {os.path.basename(args.not_run)}: {line}" for line in not_run if line not in listed]
        failures += [f"{os.path.basename(args.not_run)} lists what is no longer there: {line}"
                     for line in listed if line not in not_run]
    if failures:
        sys.exit("\nFAILED\n" + "\n\n".join(failures))


if __name__ == "__main__":
    main()
