// Runs the tests of the chat page; the last line counts them.
// usage: node check_page.mjs PAGE CHROMIUM [--program SWIFTLET] [--only WORDS] [--slow N] [--screenshots FOLDER]
//   PAGE         the built page
//   --program    whose `serve` has the page and the scripted engine; without it all tests run on the mock
//   --slow       the pages' processor seems so many times as slow
//   --screenshots  pictures of every state are left there
import { Bench, Failure, launch, Skipped } from "./harness.mjs";
import { tests } from "./page_tests.mjs";

const [page, chromium, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : "");
const only = option("--only");
const browser = await launch(chromium);
const TOGETHER = 4; // tests that run at a time; those of speed run alone, after the others
let passed = 0;
let failed = 0;
let skipped = 0;

async function one(name, test) {
  const bench = Object.assign(new Bench(browser, { page, program: option("--program"), slow: Number(option("--slow")) }),
    { shots: option("--screenshots") });
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
  const skip = fault instanceof Skipped;
  if (skip) skipped++;
  else if (fault) failed++;
  else passed++;
  console.log(`${skip ? "skipped" : fault ? "FAILED" : "ok"}  ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
  if (fault) console.log(`    ${(skip || fault instanceof Failure ? fault.message : fault.stack).split("\n").join("\n    ")}`);
}

const asked = Object.entries(tests).filter(([name]) => name.includes(only));
const alone = ([name]) => name.includes("long tasks");
const slowest = ([name]) => name.startsWith("every state"); // so these begin first
const line = asked.filter((t) => !alone(t)).sort((a, b) => slowest(b) - slowest(a));
const worker = async () => {
  for (let t; (t = line.shift()); ) await one(...t);
};
await Promise.all(Array.from({ length: TOGETHER }, worker));
for (const t of asked.filter(alone)) await one(...t);
await browser.close();
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed ? 1 : 0);
