// SPDX-License-Identifier: Apache-2.0
// Loss by setting: the judged loss of each model over every setting that has several numbers.

// Returns [{text, value, result}] of a model, by the values of a field: the lowest mean among the
// groups with that value, which is that at the best of the other settings.
function lossesBySetting(report, model, field) {
  const best = new Map();
  for (const group of report.groups) {
    const text = group.settings?.[field];
    if (group.model !== model || text === undefined || !hasMean(group.result)) continue;
    if (!(best.get(text)?.mean <= group.result.mean)) best.set(text, group.result);
  }
  return [...best].map(([text, result]) => ({ text, value: Number(text), result }));
}

function settingsSection(report, view) {
  const fields = [...new Set(report.groups.flatMap(({ settings }) => Object.keys(settings ?? {})))];
  const figures = fields.map((field) => settingFigure(report, view, field)).filter(Boolean);
  return figures.length > 0 && dom.section("settings", "Loss by setting", figures);
}

// Draws the models of the drawn groups, each in the color of the best of these.
function settingFigure(report, view, field) {
  const losses = report.models.map((_, model) => lossesBySetting(report, model, field));
  if (!losses.some((own) => own.length > 1) || losses.flat().some(({ value }) => !isFinite(value)))
    return null;
  const name = field.slice(field.indexOf(".") + 1);
  const title = `${report.judged} by ${name}`;
  const values = stats.distinct(losses.flat().map(({ value }) => value));
  const textOf = (value) => losses.flat().find((loss) => loss.value === value).text;
  const at = values.map((_, i) => i);
  const order = modelOrder(report, view);
  const resultsOf = (model) =>
    values.map((value) => losses[model].find((loss) => loss.value === value)?.result);
  const resultText = (result) =>
    hasMean(result)
      ? format.loss(result.mean) + (result.runs > 1 ? intervalText(result) : "")
      : "–";
  const drawn = () => {
    const groups = new Map();
    for (const group of view.drawn()) {
      const { model } = report.groups[group];
      if (!groups.has(model)) groups.set(model, group);
    }
    return [...groups];
  };
  const readout = dom.el("p", { class: "readout" }, " ");
  const chart = new LineChart(
    `${title}. The arrow keys move the cursor; the numbers are in the table below.`,
    280,
    (x, aloud) => {
      readout.setAttribute("aria-live", aloud ? "polite" : "off");
      const i = Math.round(x);
      const texts = drawn().map(
        ([model]) => `${report.models[model].name} ${resultText(resultsOf(model)[i])}`,
      );
      readout.textContent = x === null ? " " : `${textOf(values[i])}: ${texts.join(" · ")}`;
    },
  );
  const numbers = dom.numbers(title, () => [
    [name, ...dom.numeric(order.map((model) => report.models[model].name))],
    values.map((value, i) => [
      textOf(value),
      ...order.map((model) => resultText(resultsOf(model)[i])),
    ]),
  ]);
  const key = dom.el("p", { class: "key" });
  view.listen((kind) => {
    if (kind === "alpha") return;
    const lines = [];
    const bands = [];
    for (const [model, group] of drawn()) {
      const results = resultsOf(model);
      const color = view.color(group);
      const add = (what, look) => {
        const values = results.map((result) => result?.[what] ?? null);
        const name = report.models[model].name + (what === "mean" ? "" : `, 95 % ${what}`);
        return lines.push({ name, values, color, ...look }) - 1;
      };
      const edge = { color: withAlpha(color, 0.35), width: 0.75 };
      bands.push({
        upper: add("high", edge),
        lower: add("low", edge),
        fill: withAlpha(color, 0.14),
      });
      add("mean", { dash: view.dash(group), width: 2.25, points: true });
    }
    const xTicks = { at, labels: values.map(textOf) };
    const xName = (i) => values[i];
    const yLabel = `${report.judged}, loss (nats)`;
    chart.draw({ x: at, lines, bands, log: false, xLabel: name, yLabel, xTicks, xName });
    key.replaceChildren(
      ...drawn().map(([model, group]) =>
        dom.el("span", {}, swatchOnce(view, group), report.models[model].name),
      ),
    );
    numbers.draw();
  });
  return dom.figure(
    title,
    `Mean over ${seedsOfGroups(report)} with its 95 % confidence interval, at the best of the ` +
      "other settings.",
    key,
    chart.host,
    readout,
    numbers.node,
  );
}
