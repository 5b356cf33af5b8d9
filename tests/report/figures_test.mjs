// SPDX-License-Identifier: Apache-2.0
// Tests of the figures and of what a reader can do with them.
import assert from "node:assert/strict";
import test from "node:test";
import { colors, fileOf, open, picture, study, wholeRun } from "./browser.mjs";
import { makeReport, nothing } from "./fixture.mjs";

test("every section and figure is drawn", async (t) => {
  const page = await open(t, study());
  assert.deepEqual(
    await page.locator("section").evaluateAll((all) => all.map((section) => section.id)),
    ["results", "loss", "outcomes", "flow", "models", "samples", "provenance"],
  );
  const lines = await colors(page, ".uplot canvas");
  assert.equal(lines.length, 6); // 3 panes, cumulative, gradient and residual by layer
  for (const count of lines) assert.ok(count > 10, `a chart has ${count} colours`);
  const maps = await colors(page, "canvas.heat");
  assert.equal(maps.length, 3);
  for (const count of maps) assert.ok(count > 20, `a heat map has ${count} colours`);
  // Every run has marks for its end and its validation loss, except for the one that diverged.
  assert.equal(await page.locator("#outcomes .mark").count(), 2 * 59);
});

test("each model has its picture, which follows the theme", async (t) => {
  const page = await open(t, study());
  const images = page.locator("#models img.picture");
  assert.equal(await images.count(), 3);
  const drawn = () =>
    images.evaluateAll((all) => all.map((image) => [image.complete, image.naturalWidth]));
  for (const [complete, width] of await drawn()) assert.ok(complete && width > 100, `${width}`);
  assert.match(await images.first().getAttribute("alt"), /^The data flow of pre: each: x = x \+ f/);
  const shown = () => images.first().evaluate((image) => decodeURIComponent(image.src));
  assert.ok((await shown()).includes("@media not all {"));
  await page.getByRole("button", { name: "Switch to the dark theme" }).click();
  assert.ok((await shown()).includes("@media all {"));
});

test("a model without a picture has its equations", async (t) => {
  const make = () => {
    const report = makeReport({ models: ["pre", "post"], seeds: 2, withProbes: false });
    delete report.models[0].picture;
    return report;
  };
  const page = await open(t, fileOf("no picture", make));
  assert.equal(await page.locator("#models .card").count(), 2);
  assert.equal(await page.locator("#models img.picture").count(), 1);
});

test("the headline is the conclusion of the study, and what went wrong", async (t) => {
  const page = await open(t, study());
  assert.equal(
    await page.locator(".outcome").textContent(),
    "none is better than the others. Diverged: none (1 of 20 runs). " +
      "Collapsed to the unigram plateau: post (10 of 20 runs).",
  );
  assert.equal(await page.locator(".outcome strong").first().textContent(), "none");
  assert.equal(await page.title(), "pre, post, none · plumb compare");
});

test("differences name their two models and their cell", async (t) => {
  const make = () => {
    const report = makeReport({ models: ["pre", "post"], seeds: 3, withProbes: false });
    report.cells = ["learning_rate=0.01"];
    return report;
  };
  const page = await open(t, fileOf("cells", make));
  assert.match(
    await page.locator("#results figure").first().textContent(),
    /post − pre, learning_rate=0\.01/,
  );
});

test("the slider smooths, with the mouse and with keys", async (t) => {
  const page = await open(t, study());
  const before = await picture(page, wholeRun);
  const slider = page.getByLabel("Smoothing α");
  await slider.focus();
  await page.keyboard.press("Home");
  await assert.doesNotReject(
    page.waitForFunction(() => document.querySelector("output.alpha").textContent === "off"),
  );
  await page.waitForFunction(
    ([css, old]) => document.querySelector(css).toDataURL() !== old,
    [wholeRun, before],
  );
  await page.keyboard.press("End");
  await page.waitForFunction(() => document.querySelector("output.alpha").textContent === "0.999");
  assert.equal(await slider.getAttribute("aria-valuetext"), "0.999");
});

test("the curve is the debiased average over every step", async (t) => {
  const report = makeReport({
    models: ["pre"],
    seeds: 1,
    steps: 50,
    withProbes: false,
    withSamples: false,
  });
  const page = await open(
    t,
    fileOf("one", () => report),
  );
  let [sum, weight] = [0, 0];
  for (const loss of report.runs[0].loss)
    [sum, weight] = [0.98 * sum + 0.02 * loss, 0.98 * weight + 0.02];
  assert.equal(await page.locator(".chip-value").textContent(), (sum / weight).toFixed(3));
});

test("bands, axis and unsmoothed lines can be chosen", async (t) => {
  const page = await open(t, study());
  let last = await picture(page, wholeRun);
  for (const choose of [
    () => page.getByRole("radio", { name: "min–max" }).check(),
    () => page.getByRole("radio", { name: "every run" }).check(),
    () => page.getByRole("radio", { name: "mean", exact: true }).check(),
    () => page.getByLabel("log", { exact: true }).check(),
    () => page.getByLabel("unsmoothed").uncheck(),
  ]) {
    await choose();
    const now = await picture(page, wholeRun);
    assert.notEqual(now, last);
    last = now;
  }
});

test("dragging zooms, the slider keeps the zoom, and a double click goes back", async (t) => {
  const page = await open(t, study());
  const before = await picture(page, wholeRun);
  const pane = page.locator("#loss .u-over").first();
  await pane.scrollIntoViewIfNeeded();
  const box = await pane.boundingBox();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 60, { steps: 4 });
  await page.mouse.up();
  const zoomed = await picture(page, wholeRun);
  assert.notEqual(zoomed, before);
  const slider = page.getByLabel("Smoothing α");
  const value = await slider.inputValue();
  await slider.fill("1");
  await page.waitForFunction(() => document.querySelector("output.alpha").textContent === "0.9");
  await slider.fill(value);
  await page.waitForFunction(
    ([css, old]) => document.querySelector(css).toDataURL() === old,
    [wholeRun, zoomed],
  );
  await pane.dblclick();
  await page.waitForFunction(
    ([css, old]) => document.querySelector(css).toDataURL() === old,
    [wholeRun, before],
  );
});

test("legend buttons hide a model everywhere and bring it back", async (t) => {
  const page = await open(t, study());
  const before = await picture(page, wholeRun);
  const button = page.getByRole("button", { name: /^post/ });
  assert.equal(await button.getAttribute("aria-pressed"), "true");
  await button.focus();
  await page.keyboard.press("Space");
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  assert.notEqual(await picture(page, wholeRun), before);
  assert.equal(await page.locator("canvas.heat:visible").count(), 2);
  await page.keyboard.press("Enter");
  assert.equal(await picture(page, wholeRun), before);
});

test("arrow keys move a cursor through steps, and the values are read out", async (t) => {
  const page = await open(t, study());
  await page.locator("#loss .chart").first().focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator(".legend-place").textContent(), "smoothed, step 2");
  assert.match(
    await page.locator(".legend [role=status]").textContent(),
    /^smoothed, step 2: pre 3\.\d{3}, post 3\.\d{3}, none \d\.\d{3}/,
  );
  await page.locator("canvas.heat").first().focus();
  await page.keyboard.press("ArrowUp");
  assert.match(
    await page.locator("#flow .readout").first().textContent(),
    /^layers\.0, step 1,000: pre [\d.e−]+ · post [\d.e−]+ · none/,
  );
});

test("pointing at one pane moves the cursor of those that show the same step", async (t) => {
  const page = await open(t, study());
  await page.locator("#loss .chart").nth(1).scrollIntoViewIfNeeded();
  await page.locator("#loss .chart .u-over").nth(1).hover();
  const at = () =>
    page
      .locator("#loss .u-cursor-x")
      .evaluateAll((lines) => lines.map((line) => line.style.transform));
  const [whole, first, last] = await at();
  assert.match(whole, /translate\((\d+)/);
  assert.match(first, /translate\((\d+)/);
  assert.match(last, /translate\(-10px/);
});

test(
  "everything that can be used is reached with Tab, in view and with a " + "visible focus",
  async (t) => {
    const page = await open(t, study());
    const reached = new Set();
    for (let i = 0; i < 120; ++i) {
      await page.keyboard.press("Tab");
      const what = await page.evaluate(() => {
        const node = document.activeElement;
        if (node === document.body) return null;
        const style = getComputedStyle(
          node.matches(".segments input") ? node.nextElementSibling : node,
        );
        return [
          node.matches(".chip") ? "chip" : node.id || node.className || node.tagName,
          style.outlineStyle !== "none",
        ];
      });
      if (!what) break;
      assert.ok(what[1], `${what[0]} shows no focus`);
      reached.add(what[0]);
    }
    for (const what of [
      "skip",
      "quiet theme",
      "sort",
      "chip",
      "alpha",
      "raw",
      "chart",
      "heat",
      "probe-step",
      "sample-seed",
      "SUMMARY",
    ]) {
      assert.ok(reached.has(what), `${what} is not reached; ${[...reached].join(", ")} are`);
    }
  },
);

test("degenerate samples are marked with the reason", async (t) => {
  const page = await open(t, study());
  await page.getByLabel("Seed", { exact: true }).selectOption("2");
  const post = page.locator("#samples .card", { has: page.getByRole("heading", { name: "post" }) });
  assert.equal(await post.locator(".degenerate").count(), 3);
  assert.match(
    await post.textContent(),
    /3 samples, 3 degenerate.*Degenerate: one token makes up 100 %.*\(nothing\)Degenerate: empty.*the same line 5 times/s,
  );
  await page.getByLabel("Seed", { exact: true }).selectOption("13");
  assert.match(
    await page.locator("#samples .card").nth(2).textContent(),
    /No samples: the run diverged/,
  );
});

test("the table sorts by its headings", async (t) => {
  const page = await open(t, study());
  const names = () =>
    page
      .locator(".results tbody th")
      .allTextContents()
      .then((all) => all.map((text) => text.trim()));
  await page.getByRole("button", { name: "last 100" }).click();
  assert.deepEqual(await names(), ["none", "pre", "post"]);
  await page.getByRole("button", { name: "last 100" }).click();
  assert.deepEqual(await names(), ["post", "pre", "none"]);
  assert.equal(await page.locator("th[aria-sort]").getAttribute("aria-sort"), "descending");
  await page.getByRole("button", { name: "model" }).click();
  assert.deepEqual(await names(), ["none", "post", "pre"]);
});

test("the table is copied as CSV and as Markdown", async (t) => {
  const page = await open(
    t,
    fileOf("formula", () => {
      const report = makeReport({ models: ["=1+1", 'a|b,"c"'], seeds: 2, withProbes: false });
      return report;
    }),
  );
  await page.evaluate(() => {
    navigator.clipboard.writeText = async (text) => {
      window.copied = text;
    };
  });
  await page.getByRole("button", { name: "Copy as CSV" }).click();
  const [head, first, second] = (await page.evaluate(() => window.copied)).split("\n");
  assert.match(head, /^model,parameters,runs,first 50,first 50 sd,last 100,last 100 sd,/);
  assert.match(first, /^'=1\+1,25968,2,3\.\d+,0\.\d+,/);
  assert.match(second, /^"a\|b,""c""",25952,2,/);
  await page.getByRole("button", { name: "Copy as Markdown" }).click();
  const lines = (await page.evaluate(() => window.copied)).split("\n");
  assert.match(lines[1], /^\| --- \| ---: \|/);
  assert.match(lines[3], /^\| a\\\|b,"c" \| 25952 \|/);
  assert.equal(await page.getByRole("status").filter({ hasText: "Copied" }).count(), 2);
});

test("every chart has a text alternative and its numbers as a table", async (t) => {
  const page = await open(t, study());
  for (const chart of await page.locator("main canvas.heat, main .chart, main .dot-rows").all()) {
    assert.ok((await chart.getAttribute("aria-label"))?.length > 20);
  }
  for (const figure of await page.locator("section > figure, .pair > figure").all()) {
    const section = figure.locator("xpath=ancestor::section");
    assert.ok((await section.locator("details.numbers").count()) > 0);
  }
  for (const summary of await page.locator("details.numbers > summary").all())
    await summary.click();
  for (const table of await page.locator("details.numbers table").all()) {
    assert.ok((await table.locator("tbody tr").count()) > 1);
    assert.ok((await table.locator("caption").textContent()).length > 5);
  }
  assert.equal(
    await page.locator("details.numbers table").count(),
    await page.locator("details.numbers").count(),
  );
});
