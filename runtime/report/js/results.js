// SPDX-License-Identifier: Apache-2.0
// Shows the ranking, the table of results, each model at its best setting, and the differences.
function resultsSection(report, view) {
  const { columns = [], rows = [] } = report.table ?? {};
  if (rows.length === 0 && !(report.paired ?? []).length) return null;
  const rankings = [bestFigure(report, view), rankingFigure(report, view)];
  return dom.section(
    "results",
    "Results",
    view.many && searchField(report, view),
    rankings,
    rows.length > 0 && resultsTable(report, view, columns, rows),
    troubles(report),
    pairedFigures(report, view),
  );
}

// Returns a field that hides the rows of rankings and table whose names lack one of its words.
function searchField(report, view) {
  const said = dom.el("span", { class: "said", role: "status" });
  const input = dom.el("input", { type: "search", id: "search", placeholder: "name" });
  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    const isFound = (name) => words.every((word) => name.toLowerCase().includes(word));
    for (const row of document.querySelectorAll("#results :is(.with-heads, .wide) [data-name]"))
      row.classList.toggle("not-found", !isFound(row.dataset.name));
    const found = report.groups.filter(({ name }) => isFound(name)).length;
    said.textContent = input.value && `${found} of ${report.groups.length}`;
  };
  input.addEventListener("input", search);
  view.listen(search); // after the rankings are drawn again
  const label = dom.el("label", { for: "search" }, "Search");
  return dom.el("div", { class: "controls" }, label, input, said);
}

function resultsTable(report, view, columns, rows) {
  const isEmpty = (cell) => ["–", "", undefined].includes(cell?.text);
  const isNumeric = columns.map(
    (_, i) => i > 0 && rows.every((row) => format.isNumber(row[i]?.value) || isEmpty(row[i])),
  );
  // A column without any value, such as a validation that was not requested, is not shown, and
  // places are in the ranking.
  const shown = [...columns.keys()].filter(
    (i) => columns[i] !== "place" && !rows.every((row) => isEmpty(row[i])),
  );
  const alarming = new Set(["survived", "diverged", "collapsed"]);
  const metric = columns.indexOf(`last ${endWindow(report)}`);
  const groupOf = (row, i) =>
    report.groups[i]?.name === row[0]?.text
      ? i
      : report.groups.findIndex((group) => group.name === row[0]?.text);

  // Only what two runs show is marked as the lowest, and not among rows of different seeds.
  const values =
    metric < 0 || report.best?.judged_alone
      ? []
      : rows
          .filter((row, i) => report.groups[groupOf(row, i)]?.result?.runs > 1)
          .map((row) => row[metric]?.value)
          .filter(format.isNumber);
  const lowest = Math.min(...values);

  const bodyRows = rows.map((row, index) => {
    const group = groupOf(row, index);
    return {
      row,
      index: group < 0 ? index : view.order.indexOf(group),
      node: dom.el(
        "tr",
        { "data-name": row[0]?.text },
        shown.map((i) => {
          const name = columns[i];
          const cell = row[i] ?? { text: "" };
          const isBest = i === metric && cell.value === lowest && values.length > 1;
          const text = cell.text === "" || cell.text === undefined ? "–" : String(cell.text);
          if (i === 0)
            return dom.el(
              "th",
              { scope: "row" },
              group >= 0 && swatch(view, group),
              " ",
              group >= 0
                ? linkToModel(report.models[report.groups[group].model]?.name, text)
                : dom.name(text),
              group >= 0 &&
                view.isBaseline(group) &&
                dom.el("span", { class: "badge" }, "baseline"),
            );
          return dom.el(
            "td",
            {
              class: [
                isNumeric[i] && "number",
                isBest && "best",
                alarming.has(name) && cell.value > 0 && "alarm",
              ]
                .filter(Boolean)
                .join(" "),
            },
            text.replace("± ", "±\u00a0"), // at most two lines
            isBest && dom.el("span", { class: "offscreen" }, " (lowest)"),
          );
        }),
      ),
    };
  });

  bodyRows.sort((a, b) => a.index - b.index);
  const body = dom.el(
    "tbody",
    {},
    bodyRows.map((row) => row.node),
  );
  let sorted = { column: -1, down: false };
  const headers = columns.map((name, i) =>
    dom.el(
      "th",
      { scope: "col", class: isNumeric[i] ? "number" : null },
      dom.el("button", { type: "button", class: "sort", onclick: () => sortBy(i) }, name),
    ),
  );
  function sortBy(column) {
    sorted = { column, down: sorted.column === column && !sorted.down };
    headers.forEach((header, i) => {
      if (i === column) header.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
    const key = ({ row }) => (isNumeric[column] ? row[column]?.value : row[column]?.text) ?? null;
    bodyRows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null) || a.index - b.index;
      const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
      return (sorted.down ? -order : order) || a.index - b.index;
    });
    body.append(...bodyRows.map((row) => row.node));
  }

  return dom.el(
    "div",
    { class: "results" },
    tallScroller(
      "Table of results",
      rows.length,
      dom.el(
        "table",
        { class: shown.length > 11 ? "wide crowded" : "wide" },
        dom.el("caption", { class: "offscreen" }, "Results, a row a model. The headings sort."),
        dom.el(
          "thead",
          {},
          dom.el(
            "tr",
            {},
            shown.map((i) => headers[i]),
          ),
        ),
        body,
      ),
    ),
    dom.el(
      "p",
      { class: "note under" },
      "Training loss in nats, mean ± standard deviation over seeds. “First” and " +
        "“last” average that many steps. A run has collapsed when its last 100 losses are no " +
        "better than guessing each " +
        "token by its frequency." +
        (columns.includes("spikes")
          ? " A spike is a loss above the median of the 50 before by 1 nat and ten times their " +
            "median absolute deviation."
          : "") +
        (columns.includes("survived")
          ? " A divergence was survived when the run continued without the batch."
          : ""),
      dom.el("span", { class: "on-screen" }, " The headings sort, and names lead to the models."),
    ),
    dom.el(
      "div",
      { class: "actions" },
      dom.copyButton("Copy as CSV", () => csvText(columns, rows)),
      dom.copyButton("Copy as Markdown", () => asMarkdown(columns, rows, isNumeric)),
    ),
  );
}

function asMarkdown(columns, rows, isNumeric) {
  const line = (cells) =>
    `| ${cells
      .map((cell) =>
        String(cell ?? "")
          .replaceAll("|", "\\|")
          .replace(/\s+/g, " "),
      )
      .join(" | ")} |`;
  return (
    [
      line(columns),
      line(isNumeric.map((numeric) => (numeric ? "---:" : "---"))),
      ...rows.map((row) => line(columns.map((_, i) => row[i]?.text))),
    ].join("\n") + "\n"
  );
}

// Lists the runs that did not finish, with their messages.
function troubles(report) {
  const ended = report.runs.filter((run) => run.status !== "finished");
  if (ended.length === 0) return null;
  const item = (run) =>
    dom.el(
      "li",
      {},
      `${report.groups[run.group]?.name ?? "?"}, seed ${run.seed}: ${run.status} at step ` +
        `${format.count(run.step)}`,
      run.message && ` – ${run.message}`,
    );
  return dom.el(
    "div",
    { class: "callout" },
    dom.el(
      "h3",
      {},
      `${format.plural(ended.length, "run")} of ${report.runs.length} did not finish`,
    ),
    dom.el("ul", {}, ended.slice(0, 5).map(item)),
    ended.length > 5 &&
      dom.el(
        "details",
        {},
        dom.el("summary", {}, `${ended.length - 5} more`),
        dom.el("ul", {}, ended.slice(5).map(item)),
      ),
  );
}

// Returns "diverged in 1 of 8", or "".
const failureText = (result) =>
  result?.diverged > 0 ? `diverged in ${result.diverged} of ${result.diverged + result.runs}` : "";

// Returns the name of a difference, "post (diverged in 1 of 8) − pre, n_layer=4".
function pairName(report, entry) {
  const model = (group) => {
    const failures = failureText(report.groups[group]?.result);
    const name = report.models[report.groups[group]?.model]?.name ?? "?";
    return failures ? `${name} (${failures})` : name;
  };
  const cell = report.cells?.[entry.cell];
  return `${model(entry.group)} − ${model(entry.against)}${cell ? `, ${cell}` : ""}`;
}

// Formats a p-value.
const pText = (p) => (!format.isNumber(p) ? "–" : p < 0.001 ? "<0.001" : p.toFixed(3));

const intervalText = (entry) =>
  format.isNumber(entry.low) && format.isNumber(entry.high)
    ? ` [${format.loss(entry.low)}, ${format.loss(entry.high)}]`
    : " (no interval)";

// Returns the text of a difference: of the means, or if a run diverged the number of seeds.
function differenceText(entry) {
  if (format.isNumber(entry.mean)) return format.difference(entry.mean) + intervalText(entry);
  if (entry.test !== "signs") return "–";
  const word = entry.lower > entry.higher ? "lower" : "higher";
  return `${word} in ${Math.max(entry.lower, entry.higher)} of ${format.plural(entry.runs, "seed")}`;
}

// Returns a drawing of differences with their intervals, a row each: those of `rows` that
// `chosen()` returns.
function differenceRows(view, label, rows, chosen) {
  const holder = dom.el("div");
  holder.toRows = () => differenceTable(rows);
  if (!rows.some(({ entry }) => format.isNumber(entry.mean))) {
    holder.append(dom.el("p", { class: "empty" }, "No pair of models without diverged runs."));
    return holder;
  }
  const row = ({ name, group, entry }) => {
    const color = view.color(group);
    const text = differenceText(entry);
    return {
      name,
      swatch: swatchOnce(view, group),
      text,
      marks: [
        format.isNumber(entry.low) && { kind: "bar", at: entry.low, to: entry.high, color },
        { kind: "dot", at: entry.mean, color, size: 5.5, title: text },
      ].filter((mark) => mark && format.isNumber(mark.at)),
    };
  };
  const draw = () => {
    const drawn = chosen().filter(({ entry }) => entry.runs > 0);
    const ends = drawn
      .flatMap(({ entry }) => [entry.mean, entry.low, entry.high])
      .filter(format.isNumber);
    holder.replaceChildren(
      dotRows({
        label:
          `${label}: ` +
          drawn.map(({ name, entry }) => `${name} ${differenceText(entry)}`).join("; "),
        low: Math.min(0, ...ends),
        high: Math.max(0, ...ends),
        rows: drawn.map(row),
        title: "difference (nats)",
        zero: true,
      }),
    );
  };
  draw();
  view.listen((kind) => kind !== "alpha" && draw());
  return holder;
}

// Returns a table of the same rows.
const differenceTable = (rows) => [
  [
    "difference",
    ...dom.numeric(["mean", "95 % from", "to", "pairs", "test", "p (Holm)", "p (equal)"]),
  ],
  rows.map(({ name, entry }) => [
    name,
    format.isNumber(entry.mean)
      ? format.cell(entry.mean, format.difference)
      : differenceText(entry),
    format.cell(entry.low, format.difference),
    format.cell(entry.high, format.difference),
    format.cell(entry.runs, format.count),
    entry.test,
    format.cell(entry.p_holm, pText),
    format.cell(entry.p_equal, pText),
  ]),
];

const pairedNote =
  "Same cell and seed, hence the same data, and the same initial weights where the models share " +
  "them. Left of 0 is a lower loss. The bar is the 95 % confidence interval of the mean " +
  "difference (Student’s t).";
const onlyDrawnNote = " Only the drawn models are here, against the baseline; the table has all.";

// Max number of differences in one drawing of all pairs.
const mostPairs = 12;

// Returns one figure per metric: the differences between models in each cell. If they are many, it
// draws those of the shown groups from the baseline; the table has all.
function pairedFigures(report, view) {
  const entries = report.paired ?? [];
  const metrics = [...new Set(entries.map((entry) => entry.metric))];
  return metrics.map((metric, i) => {
    const rows = entries
      .filter((entry) => entry.metric === metric)
      .sort((a, b) => (a.mean ?? Infinity) - (b.mean ?? Infinity) || 0)
      .map((entry) => ({ name: pairName(report, entry), group: entry.group, entry }));
    const title = `Differences between models: ${metric}`;
    const all = rows.length <= mostPairs;
    const drawn = () =>
      all
        ? rows
        : rows.filter(({ entry }) => view.isBaseline(entry.against) && view.isShown(entry.group));
    return dom.figure(
      title,
      i === 0 ? pairedNote + (all ? "" : onlyDrawnNote) : null,
      differenceRows(view, title, rows, drawn),
      dom.numbers(title, () => differenceTable(rows)).node,
    );
  });
}

// Returns a swatch for a drawing that is recreated with every theme.
function swatchOnce(view, group) {
  return swatch({ ...view, listen() {} }, group);
}
