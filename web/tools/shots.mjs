// The pictures of docs/page.md: `node tools/shots.mjs [FOLDER]`, with a server of two ranks over a link of 1 Gbit/s and some traffic.
import { fileURLToPath } from "node:url";
import { closeBrowser, onePage, openBrowser, say, startServer } from "../test/harness.mjs";

const folder = process.argv[2] ?? fileURLToPath(new URL("../../docs/img", import.meta.url));
const server = await startServer(["--ep-size", "2", "--num-threads", "1", "--ep-link-gbit", "1", "--ep-link-latency-us", "50", "--max-total-tokens", "16384"]);
await openBrowser();

// Readers that come and go: one more after another, each with a prompt of its own length.
let going = true;
async function reader(number) {
  await new Promise((resolve) => setTimeout(resolve, 400 * number));
  for (let turn = 0; going; ++turn) {
    const story = "A fox walked through the village with a lantern. ".repeat(1 + ((number * 7 + turn * 3) % 24));
    const answer = await server.ask({ messages: [{ role: "user", content: story }], max_tokens: 160 + 40 * (number % 5), temperature: 0.7 });
    await answer.text();
    await new Promise((resolve) => setTimeout(resolve, 150 * (number % 4)));
  }
}

const shots = [
  { name: "page-chat", path: "/", options: {} },
  { name: "page-chat-dark", path: "/", options: { colorScheme: "dark" } },
  { name: "page-live", path: "/#/live", traffic: true },
  { name: "page-experts", path: "/#/experts", traffic: true },
  { name: "page-timeline", path: "/#/timeline", traffic: true },
  { name: "page-setup", path: "/#/setup", traffic: true },
  { name: "page-live-phone", path: "/#/live", options: { viewport: { width: 390, height: 844 } }, traffic: true },
  { name: "page-timeline-dark", path: "/#/timeline", options: { colorScheme: "dark" }, traffic: true },
];

const prepare = {
  "page-chat": async (page) => {
    await say(page, "What is 17 + 25?");
    const answer = await say(page, "Tell me a story about a fox and a lantern.");
    await answer.getByLabel("Inspect tokens").click();
    await answer.locator(".level-4, .level-3").first().click();
  },
  "page-chat-dark": async (page) => {
    await say(page, "What is 17 + 25?");
    await say(page, "Tell me a story about a fox and a lantern.");
    await page.getByRole("button", { name: "Settings of the chat", exact: true }).click();
  },
  "page-live": (page) => page.waitForTimeout(20_000),
  "page-experts": async (page) => {
    await page.getByRole("button", { name: "Record" }).click();
    await page.locator(".heat").waitFor();
    await page.waitForTimeout(4000);
    await page.locator(".heat").hover({ position: { x: 400, y: 60 } });
  },
  "page-timeline": async (page) => {
    await page.locator(".lanes").waitFor();
    await page.getByLabel("Hold").click();
    // The fastest step with answers: others show what else the machine had to do.
    await page.evaluate(() => {
      const took = (step) => {
        const [, number, unit] = step.getAttribute("aria-label").match(/, ([\d.]+) (µs|ms|s)$/);
        return number * { µs: 1, ms: 1e3, s: 1e6 }[unit];
      };
      const steps = [...document.querySelectorAll(".step")].filter((step) => step.getAttribute("aria-label").includes("decode"));
      steps.reduce((a, b) => (took(b) < took(a) ? b : a)).click();
    });
    await page.waitForTimeout(500);
    await page.locator(".lanes").hover({ position: { x: 420, y: 30 } });
  },
};

let readers = [];
for (const { name, path, options, traffic } of shots) {
  if (traffic && readers.length === 0) readers = Array.from({ length: 14 }, (_, i) => reader(i));
  await onePage(server, { path, ...options }, async (page) => {
    await page.waitForTimeout(1200);
    await (prepare[name] ?? prepare[name.replace(/-(dark|phone)$/, "")])?.(page);
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${folder}/${name}.png` });
  });
}
going = false;
await Promise.all(readers);
await closeBrowser();
await server.stop();
