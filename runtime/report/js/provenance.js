// SPDX-License-Identifier: Apache-2.0
// Shows the origin of the numbers, so that others can reproduce them.
function provenanceSection(report) {
  const p = report.provenance ?? {};
  const facts = [
    ["plumb", p.plumb],
    ["oneDNN", p.onednn],
    ["kernels", p.kernels],
    ["matrix products", p.products],
    ["data", p.data?.description ?? p.data?.path],
    ["data SHA-256", p.data?.sha256 && dom.el("code", { class: "hash" }, p.data.sha256)],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const plugins = p.plugins ?? [];
  return dom.section(
    "provenance",
    "Provenance",
    report.command &&
      dom.el(
        "div",
        { class: "command" },
        dom.el("pre", { tabindex: "0" }, report.command),
        dom.copyButton("Copy", () => report.command),
      ),
    facts.length > 0 &&
      dom.el(
        "dl",
        { class: "provenance" },
        facts.map(([name, value]) =>
          dom.el(
            "div",
            { class: name.endsWith("SHA-256") ? "whole" : null },
            dom.el("dt", {}, name),
            dom.el("dd", {}, value),
          ),
        ),
      ),
    plugins.length > 0 &&
      dom.scroller(
        "Plugins",
        dom.table(
          "Norm plugins",
          ["id", "version", "file", "SHA-256"],
          plugins.map((plugin) => [
            plugin.id,
            plugin.version,
            plugin.path,
            dom.el("code", { class: "hash" }, plugin.sha256 ?? "–"),
          ]),
        ),
      ),
    runsTable(report),
  );
}

function runsTable(report) {
  if (report.runs.length === 0) return null;
  const { node } = dom.numbers("Every run", () => [
    [
      "model",
      { text: "seed", number: true },
      "status",
      { text: "step", number: true },
      { text: "last loss", number: true },
      "message",
    ],
    report.runs.map((run) => [
      report.groups[run.group]?.name ?? "–",
      String(run.seed),
      run.status + (run.collapsed ? ", collapsed" : ""),
      format.count(run.step),
      format.loss(run.last),
      run.message ?? "",
    ]),
  ]);
  node.querySelector("summary").textContent = "Every run";
  return node;
}
