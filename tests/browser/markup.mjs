// Opens every page of a running server, and files with HTML, whose names and texts contain markup, in Chromium.
//
//     node markup.mjs http://127.0.0.1:9856 TOKEN FILE…
//
// Each piece of markup adds an element `xss-marker` or an attribute `data-xss` if it is taken for markup, and calls `__pwned` if
// it is taken for a script. Checks that neither happens, also where the content security policy would stop the script, and that
// the pages show the markup as text.
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";

const [base, token, ...files] = process.argv.slice(2);
const MAX_PAGES = 90;

const failures = [];
let shown = 0;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});

async function contextWith(options) {
  const context = await browser.newContext(options);
  await context.exposeFunction("__pwned", () => failures.push("a script ran"));
  return context;
}

/** Checks a loaded page. */
async function check(page, at) {
  const found = await page.evaluate(() => {
    const bad = [];
    const count = (selector) => document.querySelectorAll(selector).length;
    for (const selector of ["xss-marker", "[data-xss]", "img[src='x']", "[onerror]", "[onload]", "[onclick]"])
      if (count(selector)) bad.push(`${count(selector)} of ${selector}`);
    for (const link of document.querySelectorAll("a[href], form[action], iframe[src], [formaction]")) {
      const address = link.getAttribute("href") ?? link.getAttribute("action") ?? link.getAttribute("src") ?? "";
      if (/^\s*(javascript|data|vbscript):/i.test(address)) bad.push(`link to ${address}`);
    }
    for (const script of document.querySelectorAll("script:not([src])"))
      if (script.textContent.trim() && script.type !== "application/json") bad.push("an inline script");
    return { bad, shows: document.documentElement.textContent.includes("xss-marker") };
  });
  for (const bad of found.bad) failures.push(`${at}: ${bad}`);
  shown += found.shows;
}

const context = await contextWith({ baseURL: base, extraHTTPHeaders: { Authorization: `Bearer ${token}` } });
const waiting = ["/", "/status", "/alerts/rules", "/alerts/history", "/search?q=xss-marker", "/sql?q=SELECT+*+FROM+jobs",
  "/nodes/%3Cxss-marker%3E", "/nodes?sort=%3Cxss-marker%3E", "/jobs?user=%3Cxss-marker%3E%22%20data-xss=%221"];
const seen = new Set(waiting);
let opened = 0;
while (waiting.length && opened < MAX_PAGES) {
  const path = waiting.shift();
  opened += 1;
  const page = await context.newPage();
  page.on("dialog", (dialog) => { failures.push(`${path}: a dialog`); dialog.dismiss(); });
  page.on("console", (message) => {
    if (/Content.Security.Policy/i.test(message.text())) failures.push(`${path}: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(base)) failures.push(`${path}: request to ${request.url()}`);
  });
  // A download is not a page.
  const reply = await page.goto(path, { waitUntil: "load" }).catch((error) => {
    if (!/Download is starting/.test(error.message)) throw error;
  });
  const kind = reply?.headers()["content-type"] || "";
  if (kind.startsWith("text/html")) {
    if (reply.status() >= 500) failures.push(`${path}: status ${reply.status()}`);
    await check(page, path);
    // One page of a kind is enough, unless its address has markup.
    const links = await page.$$eval("a[href^='/']", (all) => all.map((link) => link.getAttribute("href")));
    for (const link of links) {
      const shape = /xss/i.test(link) ? link.split("?")[0] : link.split("?")[0].split("/").slice(0, 2).join("/");
      if (seen.has(shape) || /\.(csv|json|svg)$/.test(shape)) continue;
      seen.add(shape);
      waiting.push(link);
    }
  }
  await page.close();
}

// Reports and mails have no content security policy of ours.
const offline = await contextWith({});
for (const file of files) {
  const page = await offline.newPage();
  page.on("dialog", (dialog) => { failures.push(`${file}: a dialog`); dialog.dismiss(); });
  await page.setContent(readFileSync(file, "utf8"), { waitUntil: "load" });
  await check(page, file);
  await page.close();
}

await browser.close();
for (const failure of new Set(failures)) console.error("FAILED " + failure);
console.log(`${opened} pages and ${files.length} files; ${shown} show markup as text`);
if (shown < 12) { console.error("FAILED too few pages show the markup"); failures.push("shown"); }
process.exit(failures.length ? 1 : 0);
