# SPDX-License-Identifier: Apache-2.0
"""Arguments that are files, or objects that become files, and settings of the library's text formats."""
from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Optional, Union

from .errors import Error
from .model import Spec
from .runtime import Runtime
from .tokenizer import Tokenizer
from .training import recipe_text

Path = Union[str, "os.PathLike[str]"]
Source = Union[Path, Spec]  # a model; a str of it, or of a recipe, is a path or the text
Data = Union[Path, Iterable[Union[str, Mapping[str, str]]]]
Recipe = Union[Path, Mapping[str, object], None]
Settings = Optional[Mapping[str, object]]


def value_text(value: object) -> str:
    """Returns a value as a setting has it: True is "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(settings: Settings) -> list[str]:
    """Returns {"train.max_steps": 200} as ["train.max_steps=200"]."""
    if not isinstance(settings or {}, Mapping):
        raise TypeError(f"set must be a dict of fields, {{\"train.max_steps\": 200}}, not {type(settings).__name__}")
    return [f"{field}={value_text(value)}" for field, value in (settings or {}).items()]


def quoted(text: str) -> str:
    """Returns a string of protobuf's text format."""
    return json.dumps(text, ensure_ascii=False)


def is_text(source: object) -> bool:
    """Returns True for a text of fields, and False for the path of a file."""
    return isinstance(source, str) and not os.path.exists(source) and (
        source.strip() == "" or re.match(r"(\s*#.*\n)*\s*\w+\s*[:{]", source) is not None)


def is_no_path(source: object) -> bool:
    """Returns True for a str that was hardly meant to be the name of a file, and is not one."""
    return isinstance(source, str) and not os.path.exists(source) and (
        len(source) > 255 or re.search(r"[\s={]", source) is not None)


def shortened(text: str) -> str:
    """Returns the beginning of a text as a Python literal."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def file_path(value: object, name: str, kinds: str) -> str:
    """Returns the path of a file. Raises TypeError if `value` is no path, with what else the argument may be, and
    ValueError for a str that is evidently none."""
    if is_no_path(value):
        raise ValueError(f"{name} must be {kinds}; {shortened(str(value))} is neither")
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    raise TypeError(f"{name} must be {kinds}, not {type(value).__name__}")


class Inputs:
    """Arguments that become files in the directory of a run or a study. A file that this class has written, but that no
    run was trained with, may be written again with another text; any other only if the call `replaces` files."""

    def __init__(self, directory: Path, replaces: bool = False) -> None:
        self.directory, self._replaces = directory, replaces
        self._unused_path = os.path.join(directory, ".unused-inputs.json")  # {"data.jsonl": its hash}
        self._names: set[str] = set()

    def write(self, name: str, text: str) -> str:
        """Writes a file and returns its absolute path. Raises FileExistsError if there is one with another text that
        is the user's own, or that runs were trained with."""
        path = os.path.abspath(os.path.join(self.directory, name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._names.add(name)
        new, old, unused = text.encode(), None, self._unused()
        with suppress(FileNotFoundError), open(path, "rb") as file:
            old = file.read()
        if old == new:
            return path
        if old is not None and not self._replaces and unused.get(name) != hashlib.sha256(old).hexdigest():
            raise FileExistsError("\n".join([
                f"{path}: has other contents; choose another out, or in compare() overwrite=True",
                *_changed_lines(old.decode(errors="replace"), text)]))
        with open(path, "wb") as file:
            file.write(new)
        self._set_unused({**unused, name: hashlib.sha256(new).hexdigest()})
        return path

    def use(self) -> None:
        """Keeps the files of this call from then on, because runs are trained with them."""
        unused = self._unused()
        if self._names & unused.keys():
            self._set_unused({name: text_hash for name, text_hash in unused.items() if name not in self._names})

    def _unused(self) -> dict[str, str]:
        with suppress(FileNotFoundError, ValueError), open(self._unused_path, encoding="utf-8") as file:
            found: dict[str, str] = json.load(file)
            return found
        return {}

    def _set_unused(self, unused: Mapping[str, str]) -> None:
        if unused:
            with open(self._unused_path, "w", encoding="utf-8") as file:
                json.dump(unused, file)
        else:
            os.remove(self._unused_path)


def _changed_lines(old: str, new: str) -> list[str]:
    """Returns the first lines that differ, at most three, and "..." if there are more; "-" is a line of `old`."""
    lines = old.splitlines(), new.splitlines()
    same = len(os.path.commonprefix(lines))
    parts = [each[same:same + 50] for each in lines]  # because a diff of long texts takes long
    changed = list(difflib.unified_diff(parts[0], parts[1], n=0, lineterm=""))[2:]
    shown = [f"  {line if len(line) <= 100 else line[:97] + '...'}" for line in changed if not line.startswith("@@")]
    return [*shown[:3], *(["  ..."] if len(shown) > 3 else [])]


@contextmanager
def input_directory(labels: Sequence[str] = ()) -> Iterator[str]:
    """Yields a temporary directory for arguments that become files. An Error names the argument instead of such a file:
    "DIR/model.pbtxt:7:3" is "model:7:3", and line i of DIR/study.pbtxt is `labels[i - 1]`."""
    with tempfile.TemporaryDirectory(prefix="plumb-") as directory:
        try:
            yield directory
        except Error as error:
            def argument(found: re.Match[str]) -> str:
                if found[1] == "study" and found[2]:
                    return labels[int(found[2]) - 1]
                return found[1] + (f":{found[2]}:{found[3]}" if found[2] else "")

            pattern = re.escape(directory + os.sep) + r"(\w+)\.pbtxt(?::(\d+):(\d+))?"
            error.args = (re.sub(pattern, argument, str(error)),)
            if error.file == os.path.join(directory, "study.pbtxt"):
                error.file = error.line = error.column = None
            elif error.file is not None:
                error.file = re.sub(pattern, argument, error.file)
            raise


def _refuse_statements(source: str, name: str) -> None:
    """Raises ValueError if a model is a placement: a statement, or the name of one that ships with plumb."""
    if re.match(r"\s*\w+(\[[^]]*\])?\s*=", source):
        raise ValueError(f"{name}: {shortened(source)} is a statement of a placement, not a model; write "
                         f"plumb.placement({shortened(source)}).spec(n_layer=, n_head=, d_model=, context_length=)")
    if any(source in directory["names"] for directory in Runtime().describe()["placements"]["directories"]):
        raise ValueError(f"{name}: {source!r} is a placement, not the file of a model; a model names it, "
                         f"block {{ placement: {quoted(source)} norm: \"rms_norm\" }}; to train a model with each of "
                         f"several, write plumb.compare(model, ..., "
                         f"grid={{\"model.block.placement\": [{quoted(source)}, ...]}})")


def model_of(source: object, name: str = "model") -> Union[Spec, str]:
    """Returns a model that is given as an object or a text as a Spec, or the path of its file."""
    if isinstance(source, Spec):
        return source
    if is_text(source):
        return Spec(str(source), name)
    if isinstance(source, str) and not os.path.exists(source):
        _refuse_statements(source, name)
    kinds = "a Spec, its text or a file"
    if hasattr(source, "spec"):
        raise TypeError(f"{name} must be {kinds}, not {type(source).__name__}; its "
                        "spec(n_layer=, n_head=, d_model=, context_length=) is one")
    return file_path(source, name, kinds)


def model_file(source: object, inputs: Inputs) -> str:
    """Returns the path of a model's file, for an object or a text one of `inputs`."""
    found = model_of(source)
    return found if isinstance(found, str) else inputs.write("model.pbtxt", str(found))


def named_spec(source: object, name: str) -> Spec:
    """Returns a copy of a model with another name; its imports are absolute."""
    found = model_of(source, name)
    text = str(Spec.from_file(found) if isinstance(found, str) else found)
    if isinstance(found, str):
        directory = quoted(os.path.dirname(os.path.abspath(found)) + os.sep)[:-1]
        text = re.sub(r'^import: "(?!/)', lambda _: f"import: {directory}", text, flags=re.M)
    spec = Spec(text, name)
    spec["name"] = name
    return spec


def recipe_file(recipe: object, inputs: Inputs) -> Optional[str]:
    """Returns the path of a recipe's file, for a text, which is checked, one of `inputs`; None for None, and for a
    dict, which is settings."""
    if recipe is None or isinstance(recipe, Mapping):
        return None
    if is_text(recipe):
        recipe_text(str(recipe))
        return inputs.write("recipe.pbtxt", str(recipe))
    return file_path(recipe, "recipe", "a recipe's text or a file")


def with_recipe(recipe: object, settings: Settings, varied: Iterable[str] = ()) -> Settings:
    """Returns settings with the fields of a recipe that is a dict, but those that a grid varies. `settings` decide."""
    if not isinstance(recipe, Mapping):
        return settings
    settings_of(settings)  # checks them
    fields = {f"train.{field}": value for field, value in recipe.items() if f"train.{field}" not in varied}
    return {**fields, **(settings or {})}


def data_file(data: object, tokenizer: object, settings: Settings, inputs: Inputs) -> tuple[str, dict[str, object]]:
    """Returns the path of the data and the settings, with those of data and a tokenizer in memory, which become files
    of `inputs`. Raises ValueError if `settings` has one of their fields."""
    settings_of(settings)  # checks them
    own: dict[str, object] = {}
    if is_no_path(data):
        raise ValueError(f"data: a str is the name of a file, which {shortened(str(data))} is not; for texts in "
                         "memory, pass a list of documents")
    if isinstance(data, (str, os.PathLike)) or not isinstance(data, Iterable):
        path = file_path(data, "data", "a file, or a list of texts or of prompts and completions")
    else:
        rows = [{"text": row} if isinstance(row, str) else row for row in data]
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise TypeError(f"data[{i}] must be a text, or prompt and completion, not {type(row).__name__}")
        own["train.data.format"] = "JSONL"
        path = inputs.write("data.jsonl", "".join(json.dumps(dict(row)) + "\n" for row in rows))
    if tokenizer is not None:
        own["train.data.vocabulary"] = "TOKENIZER"
        own["train.data.tokenizer"] = (
            inputs.write("vocabulary.json", tokenizer.json)
            if isinstance(tokenizer, Tokenizer) else
            os.path.abspath(file_path(tokenizer, "tokenizer", "a Tokenizer, a file or a directory")))
    for field in own.keys() & (settings or {}).keys():
        argument = "data" if field == "train.data.format" else "tokenizer"
        raise ValueError(f"{field} is set by the argument {argument}; drop it in set")
    return path, {**(settings or {}), **own}
