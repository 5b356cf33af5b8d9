// SPDX-License-Identifier: Apache-2.0
// Shows the models: equations, pictures, the identity route, Jacobians, and the fields in which
// they differ.
function modelsSection(report, view) {
  const models = report.models ?? [];
  if (models.length === 0) return null;
  return dom.section(
    "models",
    "The models",
    modelCards(report, view),
    differencesTable(report, view),
    settingsTable(report, view),
  );
}

// Returns the models, that of the best group first.
function modelOrder(report, view) {
  const ranked = view.order.map((index) => report.groups[index].model);
  return [...new Set([...ranked, ...report.models.keys()])].filter(
    (model) => report.models[model] !== undefined,
  );
}

// Returns the models' cards: those that are drawn, and, if not all are, the others in a part that
// the reader opens.
function modelCards(report, view) {
  const made = new Map();
  const cardOf = (model) => {
    if (!made.has(model)) made.set(model, modelCard(report.models[model], view));
    return made.get(model);
  };
  const order = modelOrder(report, view);
  if (!view.many) {
    followAddress(report, cardOf);
    return dom.el("div", { class: "cards" }, order.map(cardOf));
  }
  const chosen = dom.el("div", { class: "cards" });
  const rest = dom.el("div", { class: "cards" });
  const summary = dom.el("summary", {});
  const details = dom.el("details", { class: "rest" }, summary, rest);
  const draw = () => {
    const drawn = new Set(view.drawn().map((index) => report.groups[index].model));
    const others = order.filter((model) => !drawn.has(model));
    chosen.replaceChildren(...order.filter((model) => drawn.has(model)).map(cardOf));
    summary.textContent = `The other ${format.plural(others.length, "model")}`;
    details.hidden = others.length === 0;
    rest.replaceChildren(...(details.open ? others.map(cardOf) : []));
  };
  followAddress(report, (model) => {
    details.open ||= !chosen.contains(cardOf(model));
    draw();
    return cardOf(model);
  });
  details.addEventListener("toggle", draw);
  view.listen((kind) => kind === "view" && draw());
  return [chosen, details];
}

const addressOf = (name) => `#${encodeURIComponent(`model-${name}`)}`;

// Returns a text as a link to the card of a model.
const linkToModel = (name, text) =>
  dom.el("a", { class: "to-model", href: addressOf(name) }, dom.name(text));

// Scrolls to the card of the model that the page's address names, such as #model-pre.
// `show(model)` returns the card after it has made it visible.
function followAddress(report, show) {
  const go = () => {
    const model = report.models.findIndex(({ name }) => addressOf(name) === location.hash);
    if (model >= 0) show(model).scrollIntoView();
  };
  window.addEventListener("hashchange", go);
  window.addEventListener("load", go);
}

function modelCard(model, view) {
  return dom.el(
    "article",
    { class: "card", id: `model-${model.name}` },
    dom.el("h3", {}, linkToModel(model.name, model.name)),
    dom.el(
      "p",
      { class: "note" },
      [
        format.isNumber(model.parameters) && format.plural(model.parameters, "parameter"),
        model.file,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    dom.el("pre", { class: "equations" }, (model.equations ?? []).join("\n")),
    model.picture && pictureOf(model, view),
    model.route && dom.el("p", { class: "route" }, model.route),
    jacobiansOf(model),
  );
}

// Returns the distinct Jacobians of the layers, more than four of them folded.
function jacobiansOf(model) {
  const jacobians = model.jacobians ?? [];
  if (jacobians.length === 0) return null;
  const line = ({ layers, jacobian }) =>
    dom.el(
      "p",
      { class: "route" },
      jacobians.length === 1
        ? "Jacobian of every layer: "
        : `Jacobian of ${layers.length === 1 ? "layer" : "layers"} ${format.ranges(layers)}: `,
      dom.el("code", {}, jacobian),
    );
  if (jacobians.length <= 4) return jacobians.map(line);
  return dom.el(
    "details",
    {},
    dom.el("summary", {}, `Jacobians, ${jacobians.length} distinct ones`),
    jacobians.map(line),
  );
}

// Returns the data flow as an image, in which scripts of the SVG cannot run. It follows the theme
// of the page, not of the system.
function pictureOf(model, view) {
  // With its size, the image takes its place before it is decoded, and links scroll to theirs.
  const [, width, height] = /width="([\d.]+)" height="([\d.]+)"/.exec(model.picture) ?? [];
  const image = dom.el("img", {
    class: "picture",
    width: width && Math.round(width),
    height: height && Math.round(height),
    alt: `The data flow of ${model.name}: ${(model.equations ?? []).join("; ")}`,
  });
  const draw = () => {
    const dark = view.theme === "dark" ? "all" : "not all";
    const svg = String(model.picture).replaceAll("(prefers-color-scheme: dark)", dark);
    image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  };
  view.listen((kind) => kind !== "alpha" && draw());
  draw();
  return image;
}

// Returns a table with a row for each field, or, if there are more models than fields, for each
// model.
function differencesTable(report, view) {
  const differences = report.differences ?? [];
  if (differences.length === 0)
    return report.models.length > 1
      ? dom.el("p", { class: "empty part" }, "The model files say the same in every field.")
      : null;
  if (differences.every(({ values }) => report.models.every(({ name }, i) => values?.[i] === name)))
    return dom.el(
      "p",
      { class: "part" },
      "The models differ only in ",
      differences.flatMap(({ field }, i) => [i > 0 && " and ", dom.el("code", {}, field)]),
      ", which names them.",
    );
  const order = modelOrder(report, view);
  const nameOf = (model) => report.models[model].name;
  const valueOf = (entry, model) => String(entry.values?.[model] ?? "–");
  const caption = "Only the fields that differ; all else is the same in every model.";
  const table =
    order.length > differences.length
      ? dom.table(
          caption,
          ["model", ...differences.map((entry) => dom.el("code", {}, entry.field))],
          order.map((model) => [
            nameOf(model),
            ...differences.map((entry) => valueOf(entry, model)),
          ]),
        )
      : dom.table(
          caption,
          ["field", ...order.map(nameOf)],
          differences.map((entry) => [
            dom.el("code", {}, entry.field),
            ...order.map((model) => valueOf(entry, model)),
          ]),
        );
  return dom.el(
    "div",
    { class: "part" },
    dom.el("h3", {}, "Where they differ"),
    tallScroller("Fields that differ", order.length, table),
  );
}

// Returns a scrolling box whose headings stay in view if the table has many rows.
function tallScroller(label, rows, table) {
  const box = dom.scroller(label, table);
  if (rows > 20) box.classList.add("tall");
  return box;
}

// Returns the settings of the groups that the study varied, without the fields that make models of
// their own.
function settingsTable(report, view) {
  const ofModels = new Set((report.differences ?? []).map(({ field }) => `model.${field}`));
  const settings = report.groups.flatMap((group) => Object.keys(group.settings ?? {}));
  const fields = [...new Set(settings)].filter((field) => !ofModels.has(field));
  if (fields.length === 0) return null;
  return dom.el(
    "div",
    { class: "part" },
    dom.el("h3", {}, "What the study varied"),
    tallScroller(
      "Settings",
      report.groups.length,
      dom.table(
        "Settings of each curve, over those of the model’s file.",
        ["curve", ...fields],
        view.order.map((index) => [
          report.groups[index].name,
          ...fields.map((field) => String(report.groups[index].settings?.[field] ?? "–")),
        ]),
      ),
    ),
  );
}
