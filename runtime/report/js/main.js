// SPDX-License-Identifier: Apache-2.0
// Draws the sections of the page in order.
function drawReport(report) {
  report.runs ??= [];
  report.groups ??= [];
  report.models ??= [];
  const view = createView(report);
  const legend = createLegend(report, view);
  const curves = new LossCurves(report);
  const figures = [
    lossSection(report, view, legend, curves),
    outcomesSection(report, view, legend, curves),
    flowSection(report, view),
  ].filter(Boolean);
  const sections = [
    resultsSection(report, view),
    settingsSection(report, view),
    figures.length > 0 && dom.el("div", { class: "figures" }, legend.node, figures),
    modelsSection(report, view),
    samplesSection(report, view),
    provenanceSection(report),
  ].filter(Boolean);
  const content = document.getElementById("content");
  content.append(headlineSection(report), ...sections);
  content.querySelector(".headline").prepend(topBar(content, view));
  view.set({});
}

// Returns links to the existing sections, and the theme button.
function topBar(content, view) {
  const theme = dom.el("button", {
    type: "button",
    class: "quiet theme",
    onclick: () => view.set({ theme: view.theme === "dark" ? "light" : "dark", themeChosen: true }),
  });
  view.listen(() => {
    theme.textContent = view.theme === "dark" ? "Light" : "Dark";
    theme.setAttribute(
      "aria-label",
      `Switch to the ${view.theme === "dark" ? "light" : "dark"} theme`,
    );
  });
  return dom.el(
    "div",
    { class: "top" },
    dom.el(
      "nav",
      { "aria-label": "Sections" },
      [...content.querySelectorAll("section[id]")].map((section) =>
        dom.el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent),
      ),
    ),
    theme,
  );
}

const begun = performance.now();
try {
  drawReport(unpackReport(JSON.parse(document.getElementById("report").textContent)));
  // The charts draw at the end of this task, so the timeout after the next frame follows them.
  requestAnimationFrame(() =>
    setTimeout(() => {
      document.documentElement.dataset.drawn = String(Math.round(performance.now() - begun));
    }),
  );
} catch (error) {
  document
    .getElementById("content")
    .append(
      dom.el(
        "p",
        { class: "plain", role: "alert" },
        `This report could not be drawn: ${error.message}. The numbers are also in table.md, ` +
          `table.csv and runs.csv next to it.`,
      ),
    );
  throw error;
}
