// SPDX-License-Identifier: Apache-2.0
// Shared parts of the tests in a browser. They open the report in headless Chromium from disk, like
// a reader.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before } from "node:test";
import { pathToFileURL } from "node:url";
import { makeReport } from "./fixture.mjs";

const { chromium } = createRequire(import.meta.url)("playwright-core");
const directory = mkdtempSync(path.join(tmpdir(), "plumb-report-"));
let browser;

before(async () => {
  // Chromium has no sandbox for root and in many containers, and the page is our own.
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
});
after(async () => {
  await browser?.close();
  rmSync(directory, { recursive: true, force: true });
});

const pages = new Map();
export function fileOf(name, make) {
  if (!pages.has(name)) {
    const file = path.join(directory, `${name}.html`);
    writeFileSync(
      file,
      execFileSync(process.env.RENDER_REPORT, {
        input: JSON.stringify(make()),
        maxBuffer: 2 ** 28,
      }),
    );
    pages.set(name, pathToFileURL(file).href);
  }
  return pages.get(name);
}
export const study = () => fileOf("study", () => makeReport());

// Opens the page. Fails the test if the page logs messages or errors, or loads anything but itself.
export async function open(t, url, { ready = "html[data-drawn]", ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    colorScheme: "light",
    ...options,
  });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.stack));
  page.on(
    "request",
    (request) =>
      request.url() !== url &&
      !request.url().startsWith("data:") &&
      complaints.push(`asked for ${request.url()}`),
  );
  await page.goto(url);
  await page.waitForSelector(ready);
  t.after(async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  });
  return page;
}

// Waits for a theme, because the page notices a change of theme or medium only in the next frame.
export const themeIs = (page, theme) =>
  page.waitForFunction((wanted) => document.documentElement.dataset.theme === wanted, theme);

// Returns the number of different colours that each canvas shows.
export const colors = (page, selector) =>
  page.evaluate(
    (css) =>
      [...document.querySelectorAll(css)].map((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
      }),
    selector,
  );
export const picture = (page, selector) =>
  page.evaluate((css) => document.querySelector(css).toDataURL(), selector);
export const wholeRun = "#loss figure canvas";
