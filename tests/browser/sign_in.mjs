// Signs in with a real browser: with a name and a password, and with OpenID Connect.
//
// Usage: node sign_in.mjs ADDRESS USER PASSWORD. The provider of OpenID Connect signs USER in without asking. Prints what failed
// and exits with 1.
import { chromium } from "playwright-core";

const [address, user, password] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--no-proxy-server"],
});
const refused = [];

/** Opens a page without being signed in, and returns the sign-in page to which the browser is sent. */
async function signInPage() {
  const context = await browser.newContext();
  const page = await context.newPage();
  // The content security policy must allow what the page does.
  page.on("console", (line) => line.type() === "error" && refused.push(line.text()));
  await page.goto(`${address}/jobs?user=${user}`);
  check(new URL(page.url()).pathname === "/login", `sent to ${page.url()}`);
  return { context, page };
}

async function signedIn({ context, page }, way) {
  await page.waitForURL(`${address}/jobs?user=${user}`);
  await page.goto(`${address}/me`);
  const shown = await page.textContent("main");
  check(shown.includes(user) && shown.includes("session"), `${way}: ${shown}`);
  // A form of the page itself may change something: the cookie and Sec-Fetch-Site are the browser's.
  await page.click("button:text-is('Sign out')");
  await page.waitForURL(`${address}/login`);
  await context.close();
}

function check(is, said) {
  if (!is) {
    throw new Error(said);
  }
}

try {
  const wrong = await signInPage();
  await wrong.page.fill("input[name=user]", user);
  await wrong.page.fill("input[name=password]", `not ${password}`);
  await wrong.page.click("button:text-is('Sign in with password')");
  await wrong.page.waitForSelector("[role=alert]");
  // The page still knows where the browser wanted to go.
  await wrong.page.fill("input[name=user]", user);
  await wrong.page.fill("input[name=password]", password);
  await wrong.page.click("button:text-is('Sign in with password')");
  await signedIn(wrong, "password");

  const oidc = await signInPage();
  await oidc.page.click("a:has-text('Sign in with')");
  await signedIn(oidc, "OpenID Connect");
  check(refused.length === 0, refused.join("\n"));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await browser.close();
}
