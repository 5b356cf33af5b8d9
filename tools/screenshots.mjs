// SPDX-License-Identifier: Apache-2.0
// Takes screenshots of pages for docs/images: node tools/screenshots.mjs GALLERY OUT, called by
// tools/screenshots.sh. Fails if a page is wider than its window, because a reader would have to
// scroll sideways.
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { chromium } = createRequire(import.meta.url)("playwright-core");
const kMaxBytes = 150_000; // for a picture in a README
const [gallery, out] = process.argv.slice(2);

const desktop = { viewport: { width: 1280, height: 900 } };
const phone = { viewport: { width: 390, height: 780 }, deviceScaleFactor: 1.5, isMobile: true };
const pictures = [
  { name: "report-light.png", page: "why_normalise.html", ...desktop, colorScheme: "light" },
  { name: "report-dark.png", page: "why_normalise.html", ...desktop, colorScheme: "dark" },
  { name: "report-phone.png", page: "why_normalise.html", ...phone, colorScheme: "light" },
  {
    name: "gallery.png",
    page: "index.html",
    viewport: { width: 1280, height: 520 },
    colorScheme: "light",
  },
  { page: "index.html", ...phone, colorScheme: "dark" }, // only its width is checked
];

// Chromium has no sandbox for root and in many containers; these pages are trusted.
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-lcd-text"],
});
try {
  for (const { name, page: file, ...options } of pictures) {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    await page.goto(pathToFileURL(path.join(gallery, file)).href);
    if (file !== "index.html") await page.waitForSelector("html[data-drawn]");
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    if (width > options.viewport.width) {
      throw new Error(`${file} is ${width} pixels wide in a window of ${options.viewport.width}`);
    }
    if (name) {
      const picture = path.join(out, name);
      await page.screenshot({ path: picture });
      const { size } = statSync(picture);
      console.log(`${picture}  ${Math.round(size / 1000)} kB`);
      if (size > kMaxBytes) throw new Error(`${picture} is larger than ${kMaxBytes} bytes`);
    }
    await context.close();
  }
} catch (error) {
  console.error(`screenshots: ${error.message}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
