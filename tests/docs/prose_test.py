#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a comment, a message or a page uses a word that readers stumble over, or a comment begins with a clause.

    prose_test.py SOURCE_DIRECTORY

Checks comments and string literals of source files, and all text of scripts and pages. A part of an identifier is not
a word there; the words of names of tests, functions and types in C and C++ are checked by themselves. Prints file:line:
the word, and what to write instead.
"""
import fnmatch
import re
import subprocess
import sys

# Words, and what to write instead of them.
WORDS = {
    r"mistakes?|mistaken": "error or diagnostic",
    r"what (?:is|was|were|are) said|it says": "message, or the name of what is reported",
    r"anew": "again",
    r"beside": "next to, or compared with",
    r"lies?|lying": "is stored, or is",
    r"go(?:es|ing)? on|went on": "continues",
    r"(?:leave|leaves|leaving|left)(?: [\w.-]+){0,2} out": "drop, or omit",
    r"told|tells?": "reports, receives, or distinguishes",
    r"(?:the|for) dead": "ranks without a heartbeat",
}
PATTERNS = [(re.compile(r"(?<![\w$./{-])(?:" + words.replace(" ", r"\s+") + r")(?![\w=(-]|[./]\w)", re.I), instead)
            for words, instead in WORDS.items()]
# Words of a name such as RunsThat, in lower case with spaces between them, and what to write instead.
NAME_WORDS = {
    **WORDS,
    r"what(?:s|ever)?|who(?:se|m)?|whether|those|that$|wherever|however|alike": "a noun, or a verb and its object",
    r"^of(?= )": "a noun before it, or a verb",
    r"^(?:k )?(?:most|least)(?! recent)": "max or min",
}
NAME_PATTERNS = [(re.compile(r"\b(?:" + words + r")\b"), instead) for words, instead in NAME_WORDS.items()]
NAME = re.compile(r"\b(?!SPDX)k?[A-Z]\w*[a-z]\w*")
BEGINNING = re.compile(r"(?:Of|What|That|Whether|As|Where|By)\b")

# Files that are not checked, and why.
SKIPPED = {
    "runtime/report/uplot/*": "vendored",
    "tests/sdk/v1/*": "frozen headers and plugins of an old ABI",
    "tests/sdk/v1_1/*": "frozen headers and plugins of an old ABI",
    "tests/fuzz/corpus/*": "test data",
    "tests/docs/prose_test.py": "lists the words",
}
# Text in which a word is not ours, by file and the text around it.
ALLOWED = [
    ("tests/tokenizer/library_strings.py", "I'VE been told so"),  # a text to tokenize
]
NAMED = ("runtime/", "cli/", "plugins/", "tests/")  # the folders whose names are checked
ALLOWED_NAMES = {"kGoOn"}  # part of plumb.hpp

C_STRINGS = r'R"(?P<raw>\w*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
SLASHES = r"(?P<comment>//[^\n]*|/\*.*?\*/)"
HASH = r"(?P<comment>(?<!\S)#[^\n]*)"
QUOTES = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
# Comments and string literals of a language. Of a script, quotes may not pair up, so all text is checked.
C, PYTHON = f"{SLASHES}|{C_STRINGS}|\\b\\d[\\w']*", f'{HASH}|(?P<doc>""".*?""")|{QUOTES}'
TEMPLATE = r"`(?:\\.|\$\{(?:`[^`]*`|\{[^{}]*\}|[^`{}])*\}|[^`\\])*`"
REGEX = r"(?:(?<=[(=,:?&|!])|(?<=[=,:?&|n] ))/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\[\\\n])+/"
JAVASCRIPT, SCRIPT, PAGE = f"{SLASHES}|{QUOTES}|{TEMPLATE}|{REGEX}", f"{HASH}|[^#]+|#", r".+"
# Text with errors in lines 1, 2, 3, 5, 8 and 9, with which the test is tested.
SAMPLE = """// Whether it is.
int a;  // What it is.
const char* text = "and it "
                   "says";
int mistake;  // A mistake_count, but a mistake
              // That continues.
Runs Select();  // ReadsWhatIsPrinted
Runs RunsThat(int kMostRuns);
TEST(Resume, GoesOnAfterAKill) {}
"""
LANGUAGES = {"c": C, "cc": C, "h": C, "hpp": C, "inc": C, "rs": C, "proto": C, "css": SLASHES, "py": PYTHON,
             "js": JAVASCRIPT, "mjs": JAVASCRIPT, "sh": SCRIPT, "bash": SCRIPT, "cmake": SCRIPT,
             "pbtxt": f"{HASH}|{QUOTES}", "md": PAGE, "html": PAGE}


def prose_of(text, language):
    """The text with the same positions in which code is \\0 and markers are blank, and the comments' beginnings."""
    prose, beginnings, last = ["\0" if not c.isspace() else c for c in text], [], (None, None)
    for token in re.finditer(language, text, re.S):
        start, found = token.start(), token[0]
        groups = token.groupdict()
        kept = re.sub(r"^(?:[rbfuL]*[\"'`]+|//[/!]?<?|/\*+|#+)|[\"'`]$|\*/$|^\s*(?://+|\*|#)(?=\s)",
                      lambda marker: " " * len(marker[0]), found, flags=re.M)
        prose[start:token.end()] = kept
        if groups.get("comment") or groups.get("doc"):
            line, column = text.count("\n", 0, start), start - text.rfind("\n", 0, start)
            alone = not text[start - column + 1:start].strip()
            if not (alone and last == (line - 1, column)) and (groups.get("comment") or alone):
                beginnings.append((start, kept.strip()))
            last = (line, column)
    return "".join(prose), beginnings


def names_in(prose, text):
    """Each name in the code, with its first position, and its words in lower case."""
    code = "".join(c if kept == "\0" else " " for c, kept in zip(text, prose))
    for name in {match[0]: match for match in reversed(list(NAME.finditer(code)))}.values():
        words = re.sub(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name[0])
        yield name.start(), name[0], words.lower()


def findings(path, text, language):
    prose, beginnings = prose_of(text, language)
    for start, name, words in names_in(prose, text) if path.startswith(NAMED) and language == C else ():
        for pattern, instead in NAME_PATTERNS:
            if pattern.search(words) and name not in ALLOWED_NAMES:
                yield start, name, instead
    for start, comment in beginnings:
        if BEGINNING.match(comment):
            yield start, comment.split()[0] + " at the beginning", "a verb of a function, a noun of a value"
    for pattern, instead in PATTERNS:
        for word in pattern.finditer(prose):
            around = " ".join(prose[max(0, word.start() - 80):word.end() + 80].split())
            if not word[0].isupper() and not any(fnmatch.fnmatch(path, file) and allowed in around for file, allowed in ALLOWED):
                yield word.start(), " ".join(word[0].split()), instead


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sorted(SAMPLE.count("\n", 0, start) + 1 for start, _, _ in findings("tests/sample.cc", SAMPLE, C)) != [1, 2, 3, 5, 8, 8, 9]:
        sys.exit("this test does not find what is wrong in its sample")
    source, count, files = sys.argv[1], 0, 0
    listed = subprocess.run(["git", "-C", source, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode:
        print("skipped: the sources are not a git checkout")
        return
    for path in listed.stdout.split("\0")[:-1]:
        language = SCRIPT if path.endswith("CMakeLists.txt") else LANGUAGES.get(path.rpartition(".")[2])
        if not language or any(fnmatch.fnmatch(path, pattern) for pattern in SKIPPED):
            continue
        with open(f"{source}/{path}", encoding="utf-8", errors="replace") as file:
            text = file.read()
        files += 1
        for start, word, instead in sorted(findings(path, text, language)):
            count += 1
            print(f"{path}:{text.count(chr(10), 0, start) + 1}: {word}: write {instead}")
    print(f"{count} in {files} files")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
