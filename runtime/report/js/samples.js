// SPDX-License-Identifier: Apache-2.0
// Shows samples of the trained models side by side, for a seed that the reader chooses.
function samplesSection(report, view) {
  const sampled = report.runs.filter((run) => (run.samples ?? []).length > 0);
  if (sampled.length === 0) return null;
  const seeds = [...new Set(sampled.map((run) => run.seed))].sort((a, b) => a - b);
  const holder = dom.el("div", { class: "cards samples" });
  const show = (seed) =>
    holder.replaceChildren(
      ...view.drawn().map((index) => {
        const group = report.groups[index];
        const run = group.runs
          .map((i) => report.runs[i])
          .find((candidate) => candidate?.seed === seed);
        const samples = run?.samples ?? [];
        const degenerate = samples.filter((sample) => sample.degenerate).length;
        return dom.el(
          "article",
          { class: "card" },
          dom.el("h3", {}, swatchOnce(view, index), " ", dom.name(group.name)),
          dom.el(
            "p",
            { class: "note" },
            samples.length === 0
              ? noSamples(run)
              : `${format.plural(samples.length, "sample")}, ` +
                  `${degenerate === 0 ? "none degenerate" : `${degenerate} degenerate`}`,
          ),
          samples.map(sampleNode),
        );
      }),
    );
  let seed = seeds[0];
  view.listen((kind) => (kind === "view" || kind === "print") && show(seed));
  show(seed);
  const picker = dom.el(
    "select",
    { id: "sample-seed", onchange: (event) => show((seed = Number(event.target.value))) },
    seeds.map((value) => dom.el("option", { value: String(value) }, String(value))),
  );
  return dom.section(
    "samples",
    "Samples",
    seeds.length > 1 &&
      dom.el("div", { class: "controls" }, dom.el("label", { for: "sample-seed" }, "Seed"), picker),
    holder,
  );
}

function noSamples(run) {
  if (!run) return "This seed was not run.";
  return run.status === "finished"
    ? "No samples were drawn."
    : `No samples: the run ${run.status === "diverged" ? "diverged" : "was interrupted"}.`;
}

function sampleNode(sample) {
  const text = String(sample.text ?? "");
  const long = text.length > 600 || text.split("\n").length > 12;
  const block = dom.el(
    "pre",
    {
      class: long ? "sample long" : "sample",
      dir: "auto",
      tabindex: long ? "0" : null,
      role: long ? "region" : null,
      "aria-label": long ? "A long sample" : null,
    },
    text === "" ? dom.el("span", { class: "note" }, "(nothing)") : text,
  );
  return dom.el(
    "div",
    { class: sample.degenerate ? "sample-box degenerate" : "sample-box" },
    block,
    sample.degenerate &&
      dom.el("p", { class: "why" }, dom.el("strong", {}, "Degenerate: "), sample.degenerate),
  );
}
