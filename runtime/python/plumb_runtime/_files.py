# SPDX-License-Identifier: Apache-2.0
"""Arguments that are files, or objects that become files, and settings of the library's text formats."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Optional, Union

from .model import Spec
from .tokenizer import Tokenizer
from .training import recipe_text

Path = Union[str, "os.PathLike[str]"]
Source = Union[Path, Spec]  # a model; a str of it, or of a recipe, is a path or the text
Data = Union[Path, Iterable[Union[str, Mapping[str, str]]]]
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


def file_path(value: object, name: str, kinds: str) -> str:
    """Returns the path of a file. Raises TypeError if `value` is no path, with what else the argument may be."""
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value)
    raise TypeError(f"{name} must be {kinds}, not {type(value).__name__}")


def write_input(path: str, text: str, replaces: bool = False) -> str:
    """Writes an argument into the directory of a run or a study, and returns its absolute path. Unless it `replaces`
    the file, raises FileExistsError if there is one with another text, which may be the user's own."""
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(path, "w" if replaces else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                raise FileExistsError(f"{path}: has other contents; choose another out, or in compare() "
                                      "overwrite=True") from None
    return path


def model_of(source: object, name: str = "model") -> Union[Spec, str]:
    """Returns a model that is given as an object or a text as a Spec, or the path of its file."""
    if isinstance(source, Spec):
        return source
    return Spec(str(source), name) if is_text(source) else file_path(source, name, "a Spec, its text or a file")


def model_file(source: object, directory: Path) -> str:
    """Returns the path of a model's file, for an object or a text one in `directory`."""
    found = model_of(source)
    return found if isinstance(found, str) else write_input(os.path.join(directory, "model.pbtxt"), str(found))


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


def recipe_file(recipe: object, directory: Path, replaces: bool = False) -> Optional[str]:
    """Returns the path of a recipe's file, for a text, which is checked, one in `directory`; None for None."""
    if recipe is None:
        return None
    if is_text(recipe):
        recipe_text(str(recipe))
        return write_input(os.path.join(directory, "recipe.pbtxt"), str(recipe), replaces)
    return file_path(recipe, "recipe", "a recipe's text or a file")


def data_file(data: object, tokenizer: object, settings: Settings, directory: Path,
              replaces: bool = False) -> tuple[str, dict[str, object]]:
    """Returns the path of the data and the settings, with those of data and a tokenizer in memory, which are written to
    `directory`. Raises ValueError if `settings` has one of their fields."""
    settings_of(settings)  # checks them
    own: dict[str, object] = {}
    if isinstance(data, (str, os.PathLike)) or not isinstance(data, Iterable):
        path = file_path(data, "data", "a file, or a list of texts or of prompts and completions")
    else:
        rows = [{"text": row} if isinstance(row, str) else row for row in data]
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise TypeError(f"data[{i}] must be a text, or prompt and completion, not {type(row).__name__}")
        own["train.data.format"] = "JSONL"
        path = write_input(os.path.join(directory, "data.jsonl"),
                           "".join(json.dumps(dict(row)) + "\n" for row in rows), replaces)
    if tokenizer is not None:
        own["train.data.vocabulary"] = "TOKENIZER"
        own["train.data.tokenizer"] = (
            write_input(os.path.join(directory, "vocabulary.json"), tokenizer.json, replaces)
            if isinstance(tokenizer, Tokenizer) else
            os.path.abspath(file_path(tokenizer, "tokenizer", "a Tokenizer, a file or a directory")))
    for field in own.keys() & (settings or {}).keys():
        argument = "data" if field == "train.data.format" else "tokenizer"
        raise ValueError(f"{field} is set by the argument {argument}; drop it in set")
    return path, {**(settings or {}), **own}
