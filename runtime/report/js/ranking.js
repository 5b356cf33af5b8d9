// SPDX-License-Identifier: Apache-2.0
// Rankings: means of the judged metric, the best first, each with its 95 % confidence interval, its
// place and its difference from the baseline.

// Returns a drawing of `entries`, which is redrawn with the view: [{group, result, difference,
// isBaseline}], where `result` and `difference` are {mean, low, high, ...} and may be missing.
// `pickOf(group)` returns a control before the name.
function rankingRows(report, view, label, entries, pickOf) {
  const results = entries.map(({ result }) => result).filter((result) => hasMean(result));
  const { low, high } = stats.range(
    results.flatMap((result) => [result.mean, result.low, result.high]).filter(format.isNumber),
  );
  const row = ({ group, result, difference, isBaseline }) => {
    const { name } = report.groups[group];
    const color = view.color(group);
    const text = [
      !hasMean(result)
        ? "no run finished"
        : format.loss(result.mean) + (result.runs > 1 ? intervalText(result) : ""),
      failureText(result),
      result?.neighbours && `next lower and higher value ${result.neighbours}`,
      result?.place && entries.length > 1 && `place ${[...new Set(result.place)].join("–")}`,
    ]
      .filter(Boolean)
      .join(", ");
    return {
      name,
      badge: isBaseline && "baseline",
      swatch: swatchOnce(view, group),
      pick: pickOf?.(group),
      text,
      more: isBaseline ? "" : differenceNode(difference),
      marks: !hasMean(result)
        ? []
        : [
            format.isNumber(result.low) && { kind: "bar", at: result.low, to: result.high, color },
            { kind: "dot", at: result.mean, color, size: 4.5, title: `${name} ${text}` },
          ].filter(Boolean),
    };
  };
  const heads = [
    "mean [95 %]",
    entries.some(({ difference }) => difference) && "− baseline [95 %]",
  ];
  const holder = dom.el("div");
  const cellsOf = (values) => values.map((value) => format.cell(value, format.loss));
  holder.toRows = () => [
    ["model", "mean", "95 % from", "to", "runs", "diverged", "− baseline", "95 % from", "to"],
    entries.map(({ group, result, difference }) => [
      report.groups[group].name,
      ...cellsOf([result?.mean, result?.low, result?.high, result?.runs, result?.diverged]),
      ...cellsOf([difference?.mean, difference?.low, difference?.high]),
    ]),
  ];
  view.listen((kind) => {
    if (kind === "alpha") return;
    // The controls are new ones, so the focus moves to the one that replaces the focused one.
    const focused = holder.contains(document.activeElement) && document.activeElement.id;
    const rows = entries.map(row);
    holder.replaceChildren(dotRows({ label, low, high, rows, heads, title: lossLabel }));
    if (focused) document.getElementById(focused)?.focus();
  });
  return holder;
}

const hasMean = (result) => format.isNumber(result?.mean);

// Returns the text of a difference, bold if it counts as found.
function differenceNode(difference) {
  if (!difference) return "–";
  const text = differenceText(difference);
  return difference.p_holm < 0.05 ? dom.el("strong", {}, text) : text;
}

// Returns the seeds over which groups are compared with each other. Seeds that only the chosen
// groups have are in the comparison at the best settings.
const seedsOfGroups = (report) =>
  report.best?.judged_alone
    ? `the ${format.plural(report.best.chosen_with, "seed")} that chose the settings`
    : "the seeds";

// Returns the ranking of all groups. Its check boxes choose whose curves are drawn.
function rankingFigure(report, view) {
  const { groups } = report;
  if (groups.length < 2 || !groups.some(({ result }) => hasMean(result))) return null;
  const differences = new Map(
    (report.paired ?? [])
      .filter((entry) => entry.metric === report.judged && view.isBaseline(entry.against))
      .map((entry) => [entry.group, entry]),
  );
  const pickOf = (index) =>
    dom.el("input", {
      type: "checkbox",
      id: `pick-${index}`,
      checked: view.isShown(index),
      disabled: !view.isShown(index) && view.isFull(),
      "aria-label": `Draw ${groups[index].name}`,
      onchange: () => view.toggle(index),
    });
  const full = dom.el("p", { class: "note", role: "status" });
  view.listen(() => {
    full.textContent = !(view.many && view.isFull())
      ? ""
      : `${palette.size} are drawn, as many as have a colour of their own. Clear one to choose ` +
        `another.`;
  });
  return dom.figure(
    `Ranking by ${report.judged}`,
    [
      `The best first, by diverged runs and then by the mean over ${seedsOfGroups(report)}, with its ` +
        "95 % confidence interval (Student’s t) and the model’s place in 95 % of the bootstrap’s " +
        "samples of seeds" +
        (differences.size > 0
          ? ", and the paired difference from the baseline, bold where it counts as found (p " +
            "below 0.05 after Holm’s correction)."
          : "."),
      dom.el(
        "span",
        { class: "on-screen" },
        view.many
          ? ` The check boxes choose up to ${palette.size} whose curves are drawn.`
          : " The check boxes choose whose curves are drawn.",
      ),
    ],
    rankingRows(
      report,
      view,
      `Ranking of the models by ${report.judged}, the best first`,
      view.order
        .filter((group) => groups[group].runs.length > 0)
        .map((group) => ({
          group,
          result: groups[group].result,
          difference: differences.get(group),
          isBaseline: view.isBaseline(group),
        })),
      pickOf,
    ),
    full,
  );
}

// Returns each model at the setting that the first seeds chose, judged by the other seeds.
function bestFigure(report, view) {
  const best = report.best;
  const ranked = (best?.models ?? [])
    .map((result, model) => ({
      result,
      group: report.groups.findIndex(
        (group) => group.model === model && group.cell === result.cell,
      ),
      difference: best.paired.find((entry) => entry.model === model && entry.against === 0),
      isBaseline: model === 0 && best.models.length > 1,
    }))
    .filter(({ result, group }) => hasMean(result) && group >= 0)
    .sort((a, b) => byOutcome(a.result, b.result));
  if (ranked.length === 0) return null;
  const title = "Each model at its best setting";
  return dom.figure(
    title,
    `The first ${format.plural(best.chosen_with, "seed")} chose the setting; these losses ` +
      `(${report.judged}) are of the other seeds.`,
    rankingRows(report, view, title, ranked),
  );
}
