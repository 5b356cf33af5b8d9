// SPDX-License-Identifier: Apache-2.0
// Shows the models: equations, pictures, the identity route, and the fields in which they differ.
function modelsSection(report, view) {
  const models = report.models ?? [];
  if (models.length === 0) return null;
  return dom.section(
    "models",
    "The models",
    dom.el(
      "div",
      { class: "cards" },
      models.map((model) =>
        dom.el(
          "article",
          { class: "card" },
          dom.el("h3", {}, model.name),
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
        ),
      ),
    ),
    differencesTable(report),
    settingsTable(report),
  );
}

// Returns the data flow as an image, in which scripts of the SVG cannot run. It follows the theme
// of the page, not of the system.
function pictureOf(model, view) {
  const image = dom.el("img", {
    class: "picture",
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

function differencesTable(report) {
  const differences = report.differences ?? [];
  if (differences.length === 0)
    return report.models.length > 1
      ? dom.el("p", { class: "empty" }, "The model files say the same in every field.")
      : null;
  return dom.el(
    "div",
    {},
    dom.el("h3", {}, "Where they differ"),
    dom.scroller(
      "Fields that differ",
      dom.table(
        "Only the fields that differ; all else is the same in every model.",
        ["field", ...report.models.map((model) => model.name)],
        differences.map((entry) => [
          dom.el("code", {}, entry.field),
          ...report.models.map((_, i) => String(entry.values?.[i] ?? "–")),
        ]),
      ),
    ),
  );
}

// Returns the settings of groups of one model that differ in what the study varied.
function settingsTable(report) {
  const fields = [...new Set(report.groups.flatMap((group) => Object.keys(group.settings ?? {})))];
  if (fields.length === 0) return null;
  return dom.el(
    "div",
    {},
    dom.el("h3", {}, "What the study varied"),
    dom.scroller(
      "Settings",
      dom.table(
        "Settings of each curve, over those of the model’s file.",
        ["curve", ...fields],
        report.groups.map((group) => [
          group.name,
          ...fields.map((field) => String(group.settings?.[field] ?? "–")),
        ]),
      ),
    ),
  );
}
