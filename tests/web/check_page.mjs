// Runs the tests of the chat page; the last line counts them.
// usage: node check_page.mjs PAGE SHOTS CHROMIUM [--program SWIFTLET] [--only WORDS]
//   PAGE      the built page           SHOTS  folder for screenshots
//   SWIFTLET  a program whose `serve` has the page and the scripted engine; without it all tests run on the mock
import { Bench, launch } from "./harness.mjs";
import { tests } from "./page_tests.mjs";

const [page, shots, chromium, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : "");
const only = option("--only");
const browser = await launch(chromium);
const TOGETHER = 3; // tests that run at a time; those of speed run alone, after the others
let passed = 0;
let failed = 0;

async function one(name, test) {
  const bench = Object.assign(new Bench(browser, { page, program: option("--program") }), { shots });
  const begin = Date.now();
  let fault = null;
  try {
    await test(bench);
  } catch (e) {
    fault = e;
  }
  try {
    await bench.end();
  } catch (e) {
    fault ??= e;
  }
  if (fault) failed++;
  else passed++;
  console.log(`${fault ? "FAILED" : "ok"}  ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
  if (fault) console.log(`    ${(fault.constructor.name === "Failure" ? fault.message : fault.stack).split("\n").join("\n    ")}`);
}

const asked = Object.entries(tests).filter(([name]) => name.includes(only));
const alone = ([name]) => name.includes("long tasks");
const line = asked.filter((t) => !alone(t));
const worker = async () => {
  for (let t; (t = line.shift()); ) await one(...t);
};
await Promise.all(Array.from({ length: TOGETHER }, worker));
for (const t of asked.filter(alone)) await one(...t);
await browser.close();
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
