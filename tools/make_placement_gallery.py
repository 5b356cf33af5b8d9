#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples/gallery.html: a card for each placement and each norm that ships, in one file without others.

    tools/make_placement_gallery.py [PLUMB]           writes the page; PLUMB: build/quick/bin/plumb
    tools/make_placement_gallery.py --check [PLUMB]   fails if the page differs from a newly written one

Equations and Jacobians are those of `plumb describe`, pictures those of docs/images/placements, and classes those of the
ladder (examples/benchmark) on the rungs that have results.
"""
import glob
import html
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LADDER = os.path.join(ROOT, "examples", "benchmark")
sys.path.insert(0, LADDER)
import ladder_results  # noqa: E402
from make_page import read, strings  # noqa: E402

PAGE = os.path.join(ROOT, "examples", "gallery.html")
MODEL = 'n_layer: 12 n_head: 4 d_model: 64 context_length: 64 vocab_size: 65 block { placement: "%s" norm: "rms_norm" }\n'
LEFT, STEP, TOP, HEIGHT = 52, 62, 8, 72  # of a curve, in units of its SVG


def run(*command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Ladder:
    """Outcomes of placements against the baseline, on the rungs that have results."""

    def __init__(self):
        self.protocol = json.loads(read(os.path.join(LADDER, "protocol.json")))
        self.baseline = self.protocol["families"]["baseline"]
        self.rungs = {}
        for rung in self.protocol["rungs"]:
            results = os.path.join(LADDER, "results")
            if not os.path.exists(os.path.join(results, rung["name"] + ".csv.gz")):
                continue
            found = ladder_results.differences_of(self.protocol, ladder_results.read_runs(results, rung["name"])[0])
            same = json.loads(read(os.path.join(results, rung["name"] + ".json")))["same_model"]
            equal = {"mean": 0.0, "low": None, "high": None, "outcome": "equal"}
            found.update({name: equal if other == self.baseline else found[other] for name, other in same.items()})
            self.rungs[rung["name"]] = found
        means = [abs(cell["mean"]) for cells in self.rungs.values() for cell in cells.values() if cell["mean"] is not None]
        self.limit = float(f"{statistics.quantiles(means, n=10)[-1]:.1g}")  # nine of ten differences are within it

    def classes(self, name):
        """Returns the classes of a placement so far."""
        if name == self.baseline:
            return ["the baseline"]
        outcomes = {rung: cells[name]["outcome"] for rung, cells in self.rungs.items() if name in cells}
        return ladder_results.classes(self.protocol, outcomes) if outcomes else ["not trained"]

    def curve(self, name):
        """Returns the differences over the rungs as SVG; "" without any."""
        cells = [(rung, cells[name]) for rung, cells in self.rungs.items() if name in cells]
        if not cells:
            return ""
        middle, width = TOP + HEIGHT / 2, LEFT + STEP * len(cells)

        def y(value):
            return round(middle - HEIGHT / 2 * max(-1, min(1, value / self.limit)), 1)

        marks, labels = [], []
        for i, (rung, cell) in enumerate(cells):
            x, mean, outcome = LEFT + STEP * (i + 0.5), cell["mean"], cell["outcome"]
            if mean is None:
                text, mark = "diverged", f'<path d="M{x - 4} {TOP}l8 8m0-8l-8 8"/>'
            elif abs(mean) > self.limit:
                text, down = signed(mean), 1 if mean < 0 else -1
                mark = f'<path d="M{x - 4} {y(mean) - 7 * down}h8l-4 {7 * down}z"/>'
            else:
                text = signed(mean)
                ends = [y(cell[end] if cell[end] is not None else mean) for end in ("low", "high")]
                mark = f'<path d="M{x} {ends[0]}V{ends[1]}"/><circle cx="{x}" cy="{y(mean)}" r="3"/>'
            labels.append(f"{rung} {text}, {outcome}")
            marks.append(f'<g class="{outcome}"><title>{labels[-1]}</title>{mark}</g><text x="{x}" y="{TOP + HEIGHT + 16}">{rung}</text>')
        ticks = "".join(f'<text class="tick" x="{LEFT - 6}" y="{y(value) + 4}">{signed(value)}</text><path class="grid" '
                        f'd="M{LEFT} {y(value)}H{width}"/>' for value in (self.limit, 0, -self.limit))
        found = [cell["outcome"] for _, cell in cells]
        return (f'<figure><figcaption>Loss less that of {self.baseline} (nats), by rung: better on {found.count("better")}, worse on '
                f'{found.count("worse")} of {len(found)}</figcaption><svg class="curve" role="img" '
                f'viewBox="0 0 {width} {TOP + HEIGHT + 20}" aria-label="{"; ".join(labels)}">{ticks}{"".join(marks)}</svg></figure>')


def signed(value):
    return f"{value:+.3f}".rstrip("0").replace("-", "−") if value else "0"


def linked(text):
    """Returns a text as HTML, whose papers of arXiv are links."""
    return re.sub(r"arXiv:(\d{4}\.\d{4,5})", r'<a href="https://arxiv.org/abs/\1">arXiv:\1</a>', html.escape(text, quote=False))


def source_item(block):
    """Returns a source of a placement as an item of a list."""
    paper, code, equation, compared, note = ("".join(strings(field, block)) for field in ("paper", "code", "equation", "compared", "note"))
    parts = [linked(text) for text in (paper, equation) if text]
    if code:
        owner, name, path, commit = re.fullmatch(r"([^/]+)/([^/]+)/(.+)@(\w+)", code).groups()
        parts.append(f'<a href="https://github.com/{owner}/{name}/blob/{commit}/{path}">{os.path.basename(path)}</a>')
    basis = f"Compared {compared}." if compared else "Not compared: from memory, from accounts, or without a record."
    return f"<li>{', '.join(parts)}. <span>{basis} {html.escape(note, quote=False)}</span></li>"


def card(kind, name, doc, badges, body, text):
    """Returns a card on one line but for texts whose lines matter."""
    words = "".join(f'<span class="badge">{badge}</span>' for badge in badges)
    return (f'<article class="card" id="{kind}-{name}"><h3><a href="#{kind}-{name}">{name}</a> {words}</h3>{doc and f"<p>{doc}</p>"}{body}'
            f'<details><summary>{"File" if kind == "placement" else "In a model"}</summary><pre class="file" tabindex="0">'
            f'{html.escape(text, quote=False)}</pre></details><p><button type="button" class="copy">Copy as file</button> '
            f'<span role="status"></span></p></article>\n')


def placement_card(plumb, ladder, path):
    text, name = read(path), os.path.basename(path)[:-len(".pbtxt")]
    with tempfile.NamedTemporaryFile("w", suffix=".pbtxt") as model:
        model.write(MODEL % name)
        model.flush()
        about = run(plumb, "describe", model.name, "--json")
    (layers,) = about["layers"]
    equations = about["begin"] + layers["equations"] + about["end"]
    jacobians = {layer: html.escape(one["jacobian"]) for one in layers["jacobians"] for layer in one["layers"]}
    which = {"the first": jacobians[0], "the last": jacobians[11]} if len(layers["jacobians"]) > 1 else {"each": jacobians[0]}
    shown = "".join(f'<p class="jacobian">Jacobian of {name} layer: <code>{formula}</code></p>' for name, formula in which.items())
    drawn = os.path.join(ROOT, "docs", "images", "placements", name + ".svg")
    picture = re.sub(r"<style>.*?</style>|\n", "", read(drawn), flags=re.S) if os.path.exists(drawn) else ""
    sources = "".join(map(source_item, re.findall(r"^  source \{.*?^  \}\n", text, re.M | re.S)))
    body = (f'<button type="button" class="picture" aria-expanded="false" title="Change its size">{picture}</button>'
            if picture else "")
    body += (f'<pre class="equations" tabindex="0">{html.escape(chr(10).join(equations), quote=False)}</pre>{shown}'
             f'{ladder.curve(name)}<ul class="sources">{sources}</ul>')
    return card("placement", name, linked(layers["doc"]), ladder.classes(name), body, text)


def norm_card(about):
    equation, _, source = re.fullmatch(r"(.*?)(; (?!.*; )(.*))?", about["doc"]).groups(default="")
    learned = ", ".join(f"{one['name']}{one['shape'].replace('[]', '')} ({one['doc'].rstrip('.')})" for one in about["parameters"])
    body = (f'<pre class="equations" tabindex="0">{html.escape(equation, quote=False)}</pre>'
            f'<p class="jacobian">Learned: {html.escape(learned or "nothing", quote=False)}.</p>')
    return card("norm", about["id"], linked(source), [], body, about["example"] + "\n")


def page(plumb):
    ladder = Ladder()
    paths = sorted(glob.glob(os.path.join(ROOT, "plugins", "placements", "*.pbtxt")))
    names = [line.split()[0] for line in subprocess.run([plumb, "plugin", "list"], check=True, capture_output=True,
                                                        text=True).stdout.splitlines()]
    style = re.search(r"<style>\n(.*?)</style>", read(os.path.join(ROOT, "docs", "images", "placements", "pre.svg")), re.S)[1]
    classes = [name for name in ladder.protocol["classes"] if name != "rule"]
    count = {name: sum(name in ladder.classes(os.path.basename(path)[:-6]) for path in paths) for name in classes}
    parts = {
        "picture_style": re.sub(r"^(?=[.\w])", ".picture ", style, flags=re.M),
        "classes": "".join(f'<button type="button" class="find" title="{html.escape(ladder.protocol["classes"][name])}">{name}'
                           f'</button> {count[name]} ' for name in classes if count[name]),
        "rungs": f"{len(ladder.rungs)} of {len(ladder.protocol['rungs'])} rungs, {', '.join(ladder.rungs)}",
        "placements": "".join(placement_card(plumb, ladder, path) for path in paths),
        "norms": "".join(norm_card(run(plumb, "plugin", "describe", name, "--json")) for name in names),
        "counts": f"{len(paths)} placements and {len(names)} norms"}
    return re.sub(r"@(\w+)@", lambda mark: parts[mark[1]], read(os.path.join(ROOT, "tools", "placement_gallery.html")))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    made = page(arguments[0] if arguments else os.path.join(ROOT, "build", "quick", "bin", "plumb"))
    if "--check" in sys.argv:
        if not os.path.exists(PAGE) or read(PAGE) != made:
            sys.exit("examples/gallery.html is out of date: run tools/make_placement_gallery.py, and look at the page")
        return
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(made)
    print(f"{PAGE}: {len(made.encode()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
