// SPDX-License-Identifier: Apache-2.0
// Returns the top of the page: the compared models, and the conclusion of the study.
function headlineSection(report) {
  const groups = report.groups;
  const runs = report.runs;
  const seeds = new Set(runs.map((run) => run.seed)).size;
  const facts = [
    format.plural(report.models.length, "model"),
    format.plural(seeds, "seed"),
    format.plural(report.steps ?? 0, "step"),
    format.plural(runs.length, "run"),
    report.provenance?.data?.path?.split("/").pop() ?? report.provenance?.data?.description,
  ].filter(Boolean);
  const title =
    report.title || groups.map((group) => group.name).join(", ") || "An empty comparison";
  document.title = `${title} · plumb compare`;
  return dom.el(
    "header",
    { class: "headline" },
    dom.el("p", { class: "kicker" }, "plumb compare"),
    dom.el("h1", {}, title),
    dom.el("p", { class: "outcome" }, withNames(outcome(report).join(" "))),
    dom.el(
      "ul",
      { class: "facts" },
      facts.map((text) => dom.el("li", {}, text)),
    ),
  );
}

// Names are emphasized in sentences, because a model may be called "none". The mark is the one that
// report.conclusion has around names (kNameMark in runtime/study/comparison.h).
const nameMark = "\ue000";
const named = (name) => nameMark + name + nameMark;
const withNames = (text) =>
  text.split(nameMark).map((part, i) => (i % 2 === 1 ? dom.el("strong", {}, part) : part));

// Returns the number of steps in the metric that judges the end of training, such as "last 100".
function endWindow(report) {
  const names = [
    ...(report.paired ?? []).map((entry) => entry.metric),
    ...(report.table?.columns ?? []),
  ];
  for (const name of names) {
    const match = /^last (\d+)$/.exec(name);
    if (match) return Number(match[1]);
  }
  return Math.min(100, report.steps || 100);
}

// Returns the conclusion of the study, which counts failed runs, and the interrupted runs.
function outcome(report) {
  if (report.runs.length === 0) return ["There are no runs in this comparison."];
  const interrupted = report.groups
    .map((group) => [
      group,
      group.runs.filter((run) => report.runs[run].status === "interrupted").length,
    ])
    .filter(([, n]) => n > 0)
    .map(
      ([group, n]) => `${named(group.name)} (${n} of ${format.plural(group.runs.length, "run")})`,
    );
  return [
    report.conclusion ?? "",
    interrupted.length > 0 && `Interrupted: ${format.list(interrupted)}.`,
  ].filter(Boolean);
}
