// SPDX-License-Identifier: Apache-2.0
// Figures: drawings that came with the data as SVG text, each with a link that saves it. An SVG may
// contain scripts, so it is parsed as XML, and refused if it has anything that could run or load.

// Elements that run scripts, load documents, or change attributes later.
const refusedElements = new Set([
  "script",
  "foreignObject",
  "iframe",
  "embed",
  "object",
  "handler",
  "animate",
  "set",
  "image",
  "a",
]);

// Returns the root element of an SVG text, or throws an error that says why it is refused.
function parseFigure(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  const root = parsed.documentElement;
  if (parsed.querySelector("parsererror")) throw new Error("it is not well-formed XML");
  const svg = "http://www.w3.org/2000/svg";
  for (const node of [root, ...root.querySelectorAll("*")]) {
    if (node.namespaceURI !== svg || (node === root && node.localName !== "svg"))
      throw new Error(`it contains <${node.nodeName}>, which is not SVG`);
    if (refusedElements.has(node.localName)) throw new Error(`it contains <${node.nodeName}>`);
    for (const { name, value } of node.attributes) {
      if (/^on/i.test(name)) throw new Error(`it has the attribute ${name}`);
      if (/href$/i.test(name) && !value.startsWith("#")) throw new Error(`it refers to ${value}`);
    }
  }
  return document.importNode(root, true);
}

// Returns the SVG in a shadow tree, because styles and ids of a figure would apply to the page and
// to other figures.
function inlineFigure(figure, view) {
  const host = dom.el("div", { class: "drawing" });
  const shadow = host.attachShadow({ mode: "open" });
  const style = dom.el("style", {}, "svg { display: block; max-width: 100%; height: auto; }");
  const draw = () => {
    const dark = view.theme === "dark" ? "all" : "not all";
    const text = String(figure.svg).replaceAll("(prefers-color-scheme: dark)", dark);
    const root = parseFigure(text);
    root.setAttribute("role", "img");
    root.setAttribute("aria-label", figure.title ?? figure.name ?? "figure");
    shadow.replaceChildren(style, root);
  };
  draw();
  view.listen((kind) => kind !== "alpha" && draw());
  return host;
}

function savedFigure(figure, view) {
  const title = figure.title ?? figure.name ?? "";
  try {
    const drawing = inlineFigure(figure, view);
    const file = `${String(figure.name ?? "figure").replace(/[^\w.-]+/g, "_")}.svg`;
    return dom.figure(
      title,
      null,
      drawing,
      dom.el(
        "p",
        { class: "save" },
        dom.el(
          "a",
          {
            download: file,
            href: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(figure.svg)}`,
            "aria-label": `Save ${title} as SVG`,
          },
          "Save SVG",
        ),
      ),
    );
  } catch (error) {
    const why = `This figure was refused: ${error.message}.`;
    return dom.figure(title, null, dom.el("p", { class: "empty" }, why));
  }
}

function figuresSection(report, view) {
  const figures = report.figures ?? [];
  if (figures.length === 0) return null;
  return dom.section(
    "figures",
    "Figures",
    figures.map((figure) => savedFigure(figure, view)),
  );
}
