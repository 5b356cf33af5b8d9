# SPDX-License-Identifier: Apache-2.0
"""Checks that generation ends with the tokens in the files of a checkpoint: end_tokens.py PLUMB PAGE

For each family of end_tokens.json a tiny checkpoint gets that family's special tokens, under small
ids, and its files. `plumb import` must find the end tokens that are expected with all files, without
generation_config.json, and with tokenizer.json alone. A sample of that run must end at each of them,
not print it, and an export must keep them. The export of a run that was trained here, on texts or
documents in any vocabulary, must have the same tokens, ids and samples. PAGE must have the same table.
"""

import json
import os
import shutil
import sys
import tempfile

from plumb_cli import CHECKPOINTS, Failed, plumb, read_json, write_json

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(CHECKPOINTS, "llama")


def check(holds, words):
    if not holds:
        raise Failed(words)


class Family:
    """The files of one family. The ids of its tokens count from 0 in their order."""

    def __init__(self, entry):
        self.name, self.ends = entry["family"], entry["ends"]
        self.ids = {name: i for i, name in enumerate(entry["tokens"])}
        small = {entry["tokens"][name][0]: i for name, i in self.ids.items()}

        def renumber(value):
            return [small[i] for i in value] if isinstance(value, list) else small[value]

        vocab = dict(self.ids)
        for letter in "abcdefghijklmnopqrstuvwxyz":
            vocab[letter] = len(vocab)
        self.files = {
            "tokenizer.json": {
                "added_tokens": [{"id": self.ids[name], "content": name, "special": True}
                                 for name, (_, special) in entry["tokens"].items() if special],
                "decoder": {"type": "Fuse"},
                "model": {"type": "BPE", "vocab": vocab, "merges": []}},
            "tokenizer_config.json": entry["tokenizer_config"],
            "generation_config.json": {key: renumber(value) for key, value in
                                       entry["generation_config"].items()},
        }

    def names_of(self, ids):
        names = {i: name for name, i in self.ids.items()}
        return [names[i] for i in ids]

    def checkpoint(self, directory, *left_out):
        shutil.copytree(SOURCE, directory)
        for name, content in self.files.items():
            if name not in left_out:
                write_json(os.path.join(directory, name), content)
        return directory


def run_family(binary, family, scratch):
    files = ("generation_config.json", "tokenizer_config.json")
    for i, key in enumerate(("generation", "names", "guess")):
        directory = family.checkpoint(os.path.join(scratch, f"checkpoint-{key}"), *files[:i])
        run, exported = (os.path.join(scratch, f"{what}-{key}") for what in ("run", "exported"))
        report = json.loads(plumb(binary, "import", directory, "--out", run, "--json"))
        found = family.names_of(report["end_tokens"])
        check(found == family.ends[key], f"{family.name}, {key}: {found}")
        plumb(binary, "export", run, "--out", exported)
        again = json.loads(plumb(binary, "import", exported, "--out", run + "-2", "--json"))
        check(again["end_tokens"] == report["end_tokens"], f"{family.name}, {key}: after export")
    return report["end_tokens"]


def greedy(binary, run, scratch):
    """Returns the sample after a prompt of letters: its ids and text."""
    prompt = os.path.join(scratch, "prompt.json")
    write_json(prompt, [30, 31, 32])
    [sample] = json.loads(plumb(binary, "sample", run, "--prompt-tokens", prompt, "--temperature", "0",
                                "--max-tokens", "12", "--json"))["samples"]
    return sample


def stops_at_any(binary, scratch):
    """Declares two tokens that a model of letters generates as end tokens, and checks that a text ends at
    each."""
    directory = os.path.join(scratch, "letters")
    shutil.copytree(SOURCE, directory)
    vocab = {chr(0x4E00 + i): i for i in range(53)}
    write_json(os.path.join(directory, "tokenizer.json"),
               {"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}})
    free = os.path.join(scratch, "free")
    plumb(binary, "import", directory, "--out", free)
    whole = greedy(binary, free, scratch)
    check(len(whole["ids"]) == 12 and not whole["ended"], f"without an end token: {whole}")
    for at in (1, 3):
        end = whole["ids"][at]
        first = whole["ids"].index(end)
        for where in ("generation_config.json", "config.json", "import.json"):
            config = read_json(SOURCE, "config.json") if where != "generation_config.json" else {}
            write_json(os.path.join(directory, "config.json" if where == "import.json" else where),
                       {**config, "eos_token_id": [52, end]})
            run = os.path.join(scratch, f"{where}-{at}")
            plumb(binary, "import", directory, "--out", run)
            if where == "import.json":  # like a run imported by an older plumb
                os.remove(os.path.join(run, "generation_config.json"))
            sample = greedy(binary, run, scratch)
            check(sample["ids"] == whole["ids"][:first + 1] and sample["ended"], f"{where}: {sample}")
            check(len(sample["text"]) == 3 + first, f"{where}: the end token was printed: {sample}")
            shutil.copy(os.path.join(SOURCE, "config.json"), directory)
            if where == "generation_config.json":
                os.remove(os.path.join(directory, where))


def greedy_text(binary, run):
    [sample] = json.loads(plumb(binary, "sample", run, "--prompt", "the cat", "--temperature", "0",
                                "--num", "1", "--max-tokens", "8", "--json"))["samples"]
    return sample


def exports_what_it_trained(binary, scratch):
    imported = os.path.join(scratch, "imported")
    plumb(binary, "import", SOURCE, "--out", imported)
    with open(os.path.join(imported, "model.pbtxt"), encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("vocab_size")]
    model, data = os.path.join(scratch, "model.pbtxt"), os.path.join(scratch, "data.txt")
    with open(model, "w", encoding="utf-8") as file:
        file.writelines(lines)
    with open(data, "w", encoding="utf-8") as file:
        file.write("the cat sat on a mat.\n" * 20 + "caf\u00e9?\n")
    for vocabulary in ("CHARACTERS", "BYTES", "BPE"):
        for form, more in (("TEXT", []), ("DOCUMENTS", []), ("DOCUMENTS", ["end_token=t", "begin_token=c"])):
            name = f"{vocabulary}-{form}-{len(more)}"
            run, out, again = (os.path.join(scratch, name + end) for end in ("", "-out", "-again"))
            fields = [f"format={form}", f"vocabulary={vocabulary}", "val_fraction=0", *more]
            if vocabulary == "BPE":
                fields.append("bpe_vocab_size=260")
            plumb(binary, "train", model, "--data", data, "--out", run, "--set", "train.max_steps=3",
                  *(word for field in fields for word in ("--set", "train.data." + field)))
            plumb(binary, "export", run, "--family", "llama", "--out", out)
            generation, config = (read_json(out, file) for file in ("generation_config.json", "config.json"))
            check(all(config[key] == value for key, value in generation.items()) and
                  set(generation) == {"bos_token_id", "eos_token_id", "pad_token_id"},
                  f"{name}: {config} and {generation}")
            has_end = form == "DOCUMENTS" or vocabulary == "BPE"
            check((generation["eos_token_id"] is not None) == has_end, f"{name}: {generation}")
            names = read_json(out, "tokenizer_config.json")
            check((names["eos_token"], names["bos_token"]) ==
                  (("t", "c") if more else ("<|endoftext|>",) * 2 if has_end else (None, None)),
                  f"{name}: {names}")
            plumb(binary, "import", out, "--out", again)
            ours, theirs = greedy_text(binary, run), greedy_text(binary, again)
            check((ours["ids"], ours["text"], ours["ended"]) ==
                  (theirs["ids"], theirs["text"], theirs["ended"]), f"{name}: {ours} {theirs}")


def keeps_what_its_base_had(binary, scratch):
    """Fine-tunes an imported model: its chat template and its defaults for sampling stay, unless other tokens end texts."""
    base, run, data = os.path.join(scratch, "BPE-DOCUMENTS-2-out"), os.path.join(scratch, "base"), os.path.join(scratch, "data.txt")
    template = "{{ messages }}"
    with open(os.path.join(base, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(template)
    write_json(os.path.join(base, "generation_config.json"), {**read_json(base, "generation_config.json"), "temperature": 0.6})
    plumb(binary, "import", base, "--out", run)
    for same, fields in ((True, ["format=DOCUMENTS"]), (False, ["format=DOCUMENTS", "end_token=a", "begin_token=c"])):
        tuned, out = os.path.join(scratch, f"tuned-{same}"), os.path.join(scratch, f"tuned-{same}-out")
        plumb(binary, "train", os.path.join(run, "model.pbtxt"), "--init", run, "--data", data, "--out", tuned,
              "--set", "train.max_steps=3", "--set", f"train.data.tokenizer={run}",
              *(word for field in fields for word in ("--set", "train.data." + field)))
        plumb(binary, "export", tuned, "--out", out)
        config, generation = read_json(out, "config.json"), read_json(out, "generation_config.json")
        check(config["eos_token_id"] == generation["eos_token_id"], f"{config} and {generation}")
        check(os.path.exists(os.path.join(out, "chat_template.jinja")) == same, f"same tokens: {same}: {os.listdir(out)}")
        check((generation.get("temperature") == 0.6) == same, f"same tokens: {same}: {generation}")


def rows(families):
    """Returns the table of PAGE."""
    def cell(names):
        return ", ".join(f"`{name}`" for name in names)
    return ["| " + " | ".join([entry["family"], *(cell(entry["ends"][key]) for key in
                                                 ("generation", "names", "guess"))]) + " |"
            for entry in families]


def main():
    binary, page = sys.argv[1:3]
    families = read_json(HERE, "end_tokens.json")["families"]
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    missing = [row for row in rows(families) if row not in lines]
    if missing:
        print(f"{page} lacks these rows:", *missing, sep="\n")
        return 1
    for entry in families:
        with tempfile.TemporaryDirectory() as scratch:
            run_family(binary, Family(entry), scratch)
    with tempfile.TemporaryDirectory() as scratch:
        stops_at_any(binary, scratch)
        exports_what_it_trained(binary, scratch)
        keeps_what_its_base_had(binary, scratch)
    print(f"{len(families)} families end where their files say")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(str(failure))
