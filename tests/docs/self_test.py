#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that run_snippets.py fails if it must, on small pages that are right or have a single
error.

    self_test.py --build BUILD --source SOURCE_DIRECTORY
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

GOOD = """# A page

    <!-- an indented figure: nothing to run -->

```sh
echo one > file
```

```console
$ cat file
one
$ printf 'loss 2.60 after 3 s\\nend\\n'
loss   2.55 after 4 s
...
$ plumb describe mine.pbtxt
error: mine.pbtxt: cannot open: No such file or directory
```

```pbtxt
placement { name: "mine" each: "x = x + f(norm(x))" end: "x = norm(x)" }
```

```pbtxt
each: "x = x + g * f(norm(x))"
learned { name: "g" init: 1 }
```

<!-- not run: it is a test -->
```sh
false
```

<!-- file: rule.txt -->
```text
a file
```

    cat rule.txt

```text
a figure
```
"""
# Each entry is (name of the error, text of the good page, text of the bad page, part of the
# message).
ERRORS = [
    ("another word", "one\n$ printf", "two\n$ printf", "is not what was printed"),
    ("a word in a line with numbers", "loss   2.55 after", "loss   2.55 before", "is not what was printed"),
    ("a loss far off", "loss   2.55", "loss   1.55", "is not what was printed"),
    ("a number that does not vary", "$ cat file\none", "$ echo 3 layers\n4 layers", "is not what was printed"),
    ("a line missing", "loss   2.55 after 4 s\n...", "loss   2.55 after 4 s", "more was printed"),
    ("a command that fails", "echo one > file", "echo one > no/file", "exit code 1"),
    ("an option that is gone", "plumb describe mine", "plumb describe --nothing mine", "is not what was printed"),
    ("an error that does not come", "$ plumb describe mine.pbtxt", "$ true", "exit code 0"),
    ("a formula that is none", "x + f(norm(x))", "x + f(norm(x)", "error"),
    ("a name that is unknown", "x + g *", "x + h *", "unknown name"),
    ("a field that is unknown", "learned {", "learnt {", "learnt"),
    ("a block that is not run, without a reason", "<!-- not run: it is a test -->\n", "", "exit code 1"),
    ("commands in a figure", "```text\na figure", "```text\nplumb train", "commands in a block"),
    ("a fence without a language", "```text\na figure", "```\na figure", "unnamed"),
    ("a test that does not exist", "not run: it is a test", "run by: no_such_test", "no test no_such_test"),
    ("an indented command that fails", "    cat rule.txt", "    cat rules.txt", "exit code 1"),
]


def run(text, arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "page.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run_snippets.py"), *arguments, path],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main():
    arguments = sys.argv[1:]
    code, said = run(GOOD, arguments)
    if code != 0:
        sys.exit("the good page fails:\n" + said)
    missed = []
    for what, right, wrong, word in ERRORS:
        if GOOD.count(right) < 1:
            sys.exit(f"{what}: the page has no {right!r}")
        code, said = run(GOOD.replace(right, wrong, 1), arguments)
        if code == 0 or word not in said:
            missed.append(f"{what}: exit code {code}, and the output is:\n{said}")
    print(f"{len(ERRORS)} errors, {len(ERRORS) - len(missed)} found")
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
