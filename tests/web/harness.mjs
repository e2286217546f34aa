// What every test of the page stands on: a browser, a server (mock or real), and a watch on what a page must never do:
// break the security policy, throw, or ask another origin for anything.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, existsSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { start as startMock } from "./mock_server.mjs";

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-smooth-scrolling"];

export const launch = (path) => chromium.launch({ executablePath: path, args: FLAGS });

export class Failure extends Error {}
export class Skipped extends Error {}

export function check(condition, what) {
  if (!condition) throw new Failure(what);
}

export function equal(found, expected, what) {
  const [f, e] = [JSON.stringify(found), JSON.stringify(expected)];
  if (f !== e) throw new Failure(`${what}: found ${f}, expected ${e}`);
}

const PATIENCE = 60000; // ms: tests wait for what happens, however slow the machine is

// Waits until `f` gives something true; the last value is in the message.
export async function until(f, what, ms = PATIENCE) {
  const end = Date.now() + ms;
  let value;
  for (;;) {
    value = await f();
    if (value) return value;
    if (Date.now() > end) throw new Failure(`${what}: not within ${ms} ms (last: ${JSON.stringify(value)})`);
    await new Promise((go) => setTimeout(go, 25));
  }
}

// The real server with the scripted engine: the same script as the mock's, as far as it goes.
async function startReal(program, script) {
  const folder = mkdtempSync(join(tmpdir(), "swl-page-"));
  const log = join(folder, "requests");
  mkdirSync(join(folder, "model"));
  const env = { ...process.env, SCRIPT_WORDS: "1", SCRIPT_REQUESTS: log };
  const server = { requestsFile: log, script };
  const run = (port) => new Promise((resolve, reject) => {
    env.SCRIPT_TEXT = script.text ?? "Hello, world.";
    env.SCRIPT_DELAY_MS = String(script.delay ?? 0);
    env.SCRIPT_PROMPT_MS = String(script.prompt ?? 0);
    const args = ["serve", "model", "--port", String(port), ...(script.key ? ["--api-key", script.key] : []), ...(script.args ?? [])];
    const p = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"], cwd: folder });
    let out = "";
    let err = "";
    p.stderr.on("data", (d) => (err += d));
    p.stdout.on("data", (d) => {
      out += d;
      const url = out.match(/listening on (http:\/\/127\.0\.0\.1:(\d+))/);
      if (url) resolve({ p, url: url[1], port: Number(url[2]) });
    });
    p.on("exit", (code) => reject(new Error(`the server ended (${code}): ${err}`)));
  });
  let now = await run(script.port ?? 0);
  server.url = now.url;
  server.port = now.port;
  server.stop = () => new Promise((go) => {
    now.p.removeAllListeners("exit");
    if (now.p.exitCode !== null) return go();
    now.p.on("exit", go);
    now.p.kill("SIGKILL");
  });
  server.listenAgain = async () => (now = await run(server.port));
  server.change = async (change) => {
    Object.assign(script, change);
    await server.stop();
    await server.listenAgain();
  };
  server.forget = () => rmSync(folder, { recursive: true, force: true });
  // What the engine was asked, each as {messages, temperature, ...}.
  server.asked = () => (existsSync(log) ? readFileSync(log, "utf8") : "").split("\n").slice(0, -1).map((line) => {
    const r = JSON.parse(line);
    return { ...r, messages: JSON.parse(r.messages ?? "[]") };
  });
  return server;
}

async function startFake(page, script) {
  const server = await startMock({ page, ...script });
  server.change = async (change) => void Object.assign(server.script, change);
  server.forget = () => {};
  server.asked = () => server.requests.map((r) => ({ ...r, continue_final: !!r.continue_final_message,
    think: r.chat_template_kwargs?.enable_thinking === false ? 1 : r.chat_template_kwargs?.enable_thinking ? 2 : 0 }));
  return server;
}

export class Bench {
  constructor(browser, { page, program, slow }) {
    Object.assign(this, { browser, page, program, slow, contexts: [], servers: [], faults: [] });
  }

  // `kind` "mock" where the real one cannot do what the script says.
  async server(script = {}, kind = "real") {
    const s = kind === "real" && this.program ? await startReal(this.program, { ...script }) : await startFake(this.page, script);
    this.servers.push(s);
    return s;
  }

  async context(server, options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    this.contexts.push(context);
    context.setDefaultTimeout(PATIENCE);
    await context.route("**/*", (route) => {
      const url = route.request().url();
      if (url.startsWith(server.url) || url.startsWith("blob:") || url.startsWith("data:")) return route.fallback();
      this.faults.push(`a request left the origin: ${url}`);
      return route.abort();
    });
    await context.exposeBinding("swlFault", (_source, text) => void this.faults.push(text));
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (e) => window.swlFault(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
      window.swlScriptRan = () => window.swlFault("a script of the corpus ran");
    });
    return context;
  }

  async open(server, options = {}) {
    const context = options.context ?? (await this.context(server, options));
    const page = await context.newPage();
    page.on("pageerror", (e) => this.faults.push(`error: ${e.message}\n${e.stack}`));
    page.on("console", (m) => {
      if (["error", "warning"].includes(m.type()) && !/Failed to load resource/.test(m.text())) this.faults.push(`console: ${m.text()}`);
    });
    page.on("dialog", (d) => {
      this.faults.push(`dialog: ${d.message()}`);
      void d.dismiss();
    });
    if (this.slow > 1) await (await page.context().newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate: this.slow });
    if (options.clock) await page.clock.install();
    await page.goto(server.url + (options.path ?? "/"));
    await page.waitForSelector("#message");
    return page;
  }

  async end() {
    for (const c of this.contexts) await c.close();
    for (const s of this.servers) {
      await s.stop();
      s.forget();
    }
    if (this.faults.length) throw new Failure(this.faults.slice(0, 5).join("\n"));
  }
}

// --- What people do ----------------------------------------------------------------------------------------------------

export async function send(page, text) {
  const asked = () => page.locator(".message.user").count();
  const before = await asked();
  await page.fill("#message", text);
  await page.click(".go");
  await until(async () => (await asked()) !== before, "the question is in the list");
}

export const idle = (page) => until(() => page.evaluate(() => !document.querySelector(".go.stop") && !document.querySelector("[aria-busy=true]")), "the answer ends");
export const answers = (page) => page.$$eval(".message.assistant", (all) => all.map((m) => [...m.querySelectorAll(":scope > .prose")].map((p) => p.innerText.trim()).join("\n")));
export const questions = (page) => page.$$eval(".message.user .bubble .plain", (all) => all.map((m) => m.textContent));
export const notes = (page) => page.$$eval(".note", (all) => all.map((n) => n.innerText));
export const label = (page, text) => page.locator(`[aria-label="${text}"]:visible`);
export const button = (page, text) => page.getByRole("button", { name: text, exact: true });
