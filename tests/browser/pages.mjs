// Opens every page of a running server in Chromium: light, dark, and on a phone.
//
//     node pages.mjs http://127.0.0.1:9856 FOLDER NAME
//
// Checks each page with axe-core (WCAG 2.2 AA), that it is no wider than the screen, sends nothing to other hosts, breaks
// no content security policy, and is readable without scripts. Writes a screenshot of each page into FOLDER.
import { chromium } from "playwright-core";
import { readFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";

const [base, folder, name] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(folder, { recursive: true });

const looks = {
  light: { viewport: { width: 1366, height: 900 }, colorScheme: "light" },
  dark: { viewport: { width: 1366, height: 900 }, colorScheme: "dark" },
  phone: { viewport: { width: 360, height: 740 }, colorScheme: "light", isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
};
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

let passed = 0;
const failures = [];
const check = (is_good, what) => { if (is_good) passed += 1; else { failures.push(what); console.error("FAILED " + what); } };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

// The pages: all links of the navigation, and the first object behind each kind of link.
const finder = await (await browser.newContext({ baseURL: base })).newPage();
await finder.goto("/");
const hrefs = (selector) => finder.$$eval(selector, (links) => links.map((link) => link.getAttribute("href")));
const pages = new Set(await hrefs("header nav a"));
["/status", "/alerts/rules", "/alerts/history", "/nope", "/nodes/nope", "/?foo=1", "/sql?q=SELECT+1+AS+one", "/events?range=7d"].forEach((path) => pages.add(path));
const of_jobs = pages.has("/jobs") ? ["jobs", "people", "accounts"] : [];
for (const kind of ["nodes", "gpus", ...of_jobs]) {
  const node = [...pages].find((path) => path.startsWith("/nodes/") && path !== "/nodes/nope");
  for (const from of ["/nodes", "/", node].filter(Boolean)) {
    await finder.goto(from);
    const found = (await hrefs(`main a[href^="/${kind}/"]`))[0];
    if (found) { pages.add(found); break; }
  }
}

for (const [look, options] of Object.entries(looks)) {
  const context = await browser.newContext({ ...options, baseURL: base, reducedMotion: "reduce" });
  for (const path of pages) {
    const at = `${path} ${look}`;
    const page = await context.newPage();
    const said = [];
    page.on("console", (message) => { if (message.type() === "error") said.push(message.text()); });
    page.on("pageerror", (error) => said.push(String(error)));
    page.on("request", (request) => { if (!request.url().startsWith(base) && !request.url().startsWith("data:")) said.push("request to " + request.url()); });
    const reply = await page.goto(path, { waitUntil: "load" });
    const expected = /nope/.test(path) ? 404 : /foo=/.test(path) ? 400 : 200;
    const status = reply.status();
    check(status === expected, `${at}: status ${status}`);
    const width = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    check(width[0] <= width[1], `${at}: ${width[0]} px wide on a screen of ${width[1]}`);
    await page.evaluate(axe);
    const found = await page.evaluate((tags) => window.axe.run(document, { runOnly: tags }), TAGS);
    for (const one of found.violations)
      check(false, `${at}: ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + " " + (node.any[0]?.message || "")).join(" | ")}`);
    check(found.violations.length === 0, `${at}: axe-core`);
    const real = said.filter((text) => !(expected !== 200 && /Failed to load resource/.test(text)));
    check(real.length === 0, `${at}: ${real.slice(0, 3).join("; ")}`);
    const file = (path.replace(/[^a-zA-Z0-9]+/g, "_").replace(/^_|_$/g, "") || "overview").slice(0, 40);
    await page.screenshot({ path: `${folder}/${name}-${file}-${look}.png`, fullPage: look === "phone" ? false : true, clip: undefined });
    await page.close();
  }
  await context.close();
}

// Without scripts, every page says the same.
const plain = await browser.newContext({ javaScriptEnabled: false, baseURL: base });
for (const path of pages) {
  const page = await plain.newPage();
  await page.goto(path);
  const text = await page.textContent("main");
  check(text.trim().length > 20, `${path} without scripts`);
  await page.close();
}
await plain.close();

// The budgets of the overview.
const overview = await (await browser.newContext({ baseURL: base })).newPage();
const client = await overview.context().newCDPSession(overview);
await client.send("Network.enable");
let wire = 0;
const kinds = {};
client.on("Network.responseReceived", (event) => { kinds[event.requestId] = event.type; });
client.on("Network.loadingFinished", (event) => { if (kinds[event.requestId] === "Document") wire += event.encodedDataLength; });
await overview.goto("/");
const elements = await overview.evaluate(() => document.querySelectorAll("*").length);
const paint = await overview.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
const height = await overview.evaluate(() => document.documentElement.scrollHeight);
console.log(`/ of ${name}: ${wire} bytes, ${elements} elements, ${height} px high, first paint ${Math.round(paint)} ms`);
check(wire > 0 && wire <= 60_000, `/: ${wire} bytes`);
check(elements <= 2500, `/: ${elements} elements`);

// A live page renews a section that changed, and leaves the others alone.
await overview.waitForTimeout(500);
const kept = await overview.evaluate(() => { const one = document.querySelector("main section"); one.dataset.live = "old"; one.dataset.mine = "1"; return one.id; });
const renewed = await overview.waitForFunction((id) => !document.getElementById(id).dataset.mine, kept, { timeout: 40_000 }).catch(() => null);
check(renewed !== null, "/: the section is renewed");
check(await overview.evaluate(() => document.querySelector("#main").isConnected), "/: the page stays");

// Charts: values at the pointer, and dragging chooses a time that the address keeps.
const with_charts = [...pages].find((path) => /^\/nodes\/(?!nope)/.test(path));
await overview.goto(with_charts);
await overview.locator(".chartbox").first().scrollIntoViewIfNeeded();
const chart = await overview.locator(".chartbox").first().boundingBox();
check(chart !== null, `${with_charts}: a chart`);
if (chart) {
  const point = (share) => overview.mouse.move(chart.x + chart.width * share, chart.y + chart.height / 2);
  // The server has measured for a minute only, so the last step alone has values.
  await point(0.98);
  await point(0.997);
  const values = await overview.$$eval(".cross span", (all) => all.map((one) => one.textContent));
  check(values.length === await overview.locator(".chartbox").count() && values.some((text) => /^\d/.test(text)), `${with_charts}: values at the pointer: ${values}`);
  await point(0.2);
  await overview.mouse.down();
  await point(0.6);
  await overview.mouse.up();
  await overview.waitForURL(/[?&]from=\d+&to=\d+/, { timeout: 10_000 }).catch(() => null);
  const times = new URL(overview.url()).searchParams;
  const share = (times.get("to") - times.get("from")) / 86_400;
  check(Math.abs(share - 0.4) < 0.02, `${with_charts}: dragging over two fifths of a day chooses ${share}`);
}

// The keyboard: the first Tab is the link to the content, `/` focuses the search.
await overview.goto("/");
await overview.keyboard.press("Tab");
check(await overview.evaluate(() => document.activeElement.className === "skip"), "/: Tab goes to the link to the content");
await overview.keyboard.press("/");
check(await overview.evaluate(() => document.activeElement.name === "q"), "/: the key / focuses the search");

await browser.close();
console.log(`${passed} passed, ${failures.length} failed`);
process.exit(failures.length ? 1 : 0);
