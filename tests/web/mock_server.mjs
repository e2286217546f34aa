// A stand-in for the server, for what the scripted engine cannot do: loading, a full queue, streams that break off. It
// speaks the same endpoints and frames, and serves the built page with the headers of the real one.
//
// start({page, ...script}) -> {url, script, requests, stop()}; `script` may be changed while it runs:
//   text       what is answered; <think>...</think> at the beginning is reasoning; "\n---\n" separates the first answer,
//              the second, ...; the last one stays
//   delay      ms before each token (a word)        prompt   ms before each of 8 steps of progress
//   upTo       more tokens than these, and            upToStep  more steps of progress than these, wait for a change of it
//   key        the key that is asked for            context  tokens
//   refuse     {status, code, message, retryAfter}: what chat requests get, `times` of them
//   cutAt      the connection ends after so many tokens          failAt  an error frame instead
//   metrics    figures of the expert store are in /metrics only
//   hold       after the text nothing more comes, until the reader leaves or this changes
//   queue      position in it, which is told and kept until this changes        loading true: everything but the page is 503
import { createServer } from "node:http";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { extname, join } from "node:path";

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json" };
const HEADERS = {
  "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; " +
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
    "require-trusted-types-for 'script'; trusted-types dompurify",
  "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
  "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
};
const TEMPLATE = "{% if enable_thinking %}<think>{% endif %}";
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));

function files(page) {
  const found = new Map([["/", join(page, "index.html")]]);
  if (existsSync(join(page, "assets"))) for (const f of readdirSync(join(page, "assets"))) found.set(`/assets/${f}`, join(page, "assets", f));
  return found;
}

async function body(request) {
  const parts = [];
  for await (const p of request) parts.push(p);
  return JSON.parse(Buffer.concat(parts).toString() || "null");
}

function json(response, status, value, headers = {}) {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(JSON.stringify(value));
}

const fault = (response, status, message, code = null, headers = {}) =>
  json(response, status, { error: { message, type: "error", param: null, code } }, headers);

export async function start(options) {
  const script = { text: "Hello, world.", delay: 0, prompt: 0, context: 32768, ...options };
  const paths = files(options.page);
  const requests = [];
  const sockets = new Set();
  const endThinking = new Set();

  async function chat(request, response) {
    const b = await body(request);
    requests.push(b);
    if (script.refuse && script.refuse.times-- > 0) {
      const r = script.refuse;
      return fault(response, r.status, r.message, r.code, r.retryAfter ? { "Retry-After": String(r.retryAfter) } : {});
    }
    const chars = b.messages.reduce((n, m) => n + String(m.content ?? "").length, 0);
    const total = Math.ceil(chars / 4) + 8;
    if (total > script.context)
      return fault(response, 400, `This model's maximum context length is ${script.context} tokens. However, your messages resulted in ${total} tokens.`, "context_length_exceeded");
    const id = `chatcmpl-${Math.random().toString(36).slice(2).padEnd(24, "0")}`;
    const send = (x) => response.write(`data: ${JSON.stringify({ id, object: "chat.completion.chunk", created: 1, model: "scripted", choices: [], ...x })}\n\n`);
    const delta = (d, finish = null, more = {}) => send({ choices: [{ index: 0, delta: d, finish_reason: finish }], ...more });
    response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache" });
    let gone = false;
    response.on("close", () => (gone = true));
    const changed = async (waits) => {
      while (waits() && !gone) await sleep(20);
    };
    delta({ role: "assistant", content: "" });
    if (script.queue) {
      delta({}, null, { queue_position: script.queue });
      await changed(() => script.queue);
    }
    const began = Date.now();
    for (let i = 1; i <= 8 && script.prompt && !gone; i++) {
      await sleep(script.prompt);
      await changed(() => script.upToStep && i > script.upToStep);
      delta({}, null, { prompt_progress: { total, processed: Math.round((total * i) / 8), cached: 0, time_ms: Date.now() - began } });
    }
    const answers = script.text.split("\n---\n");
    const nth = b.messages.filter((m) => m.role === "assistant").length;
    let text = answers[Math.min(nth, answers.length - 1)];
    const thought = text.match(/^<think>([\s\S]*?)<\/think>/)?.[1] ?? "";
    text = text.replace(/^<think>[\s\S]*?<\/think>/, "");
    const off = b.chat_template_kwargs?.enable_thinking === false;
    const first = Date.now();
    const prompt_ms = first - began;
    let n = 0;
    let reasoning = 0;
    const store = (k) => (script.metrics ? { expert_hits: 0, expert_misses: 0, bytes_read: 0, hit_rate: 1 }
      : { expert_hits: 87 * k, expert_misses: 13 * k, bytes_read: 2_000_000 * k, hit_rate: 0.87 });
    const timings = () => ({ cache_n: 0, prompt_n: total, prompt_ms, predicted_n: n, predicted_ms: Date.now() - first + 1,
      cache: store(n) });
    const limit = b.max_tokens ?? Infinity;
    for (const [field, all] of [["reasoning_content", off ? "" : thought], ["content", text]]) {
      for (const word of all.match(/\s*\S+\s*$|\s*\S+/g) ?? []) {
        if (field === "reasoning_content" && endThinking.has(id)) break;
        if (n >= limit || gone) break;
        if (script.delay) await sleep(script.delay);
        await changed(() => script.upTo && n >= script.upTo);
        n++;
        if (field === "reasoning_content") reasoning++;
        delta({ [field]: word }, null, b.timings_per_token ? { timings: timings() } : {});
        if (script.cutAt && n >= script.cutAt) return response.destroy();
        if (script.failAt && n >= script.failAt) {
          response.write(`data: ${JSON.stringify({ error: { message: "layer 3, expert 17: checksum differs", type: "server_error", param: null, code: null } })}\n\n`);
          return response.end();
        }
      }
    }
    await changed(() => script.hold);
    delta({}, n >= limit ? "length" : "stop", { timings: timings() });
    if (b.stream_options?.include_usage)
      send({ usage: { prompt_tokens: total, completion_tokens: n, total_tokens: total + n, prompt_tokens_details: { cached_tokens: 0 }, completion_tokens_details: { reasoning_tokens: reasoning } } });
    response.end("data: [DONE]\n\n");
  }

  const server = createServer(async (request, response) => {
    const path = request.url.split("?")[0];
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    if (paths.has(path)) {
      response.writeHead(200, { "Content-Type": TYPES[extname(paths.get(path))] ?? "application/octet-stream", "Cache-Control": "no-cache" });
      return response.end(readFileSync(paths.get(path)));
    }
    if (path === "/health" && !script.loading) return json(response, 200, { status: "ok" });
    if (script.loading) return fault(response, 503, "the model is loading", null, { "Retry-After": "1" });
    if (script.key && request.headers.authorization !== `Bearer ${script.key}`) return fault(response, 401, "a key is needed", "invalid_api_key");
    if (path === "/v1/models") {
      const list = script.models ?? ["scripted"];
      return json(response, 200, { object: "list", data: list.map((id) => ({ id, object: "model", max_model_len: script.context, meta: { n_ctx: script.context, size: 18_200_000_000, n_params: 35e9 } })) });
    }
    if (path === "/props")
      return json(response, 200, { default_generation_settings: { temperature: 0.7, top_p: 0.8, top_k: 20, min_p: 0 }, n_ctx: script.context,
        chat_template: TEMPLATE, build_info: "swiftlet mock", memory: { budget: 4_000_000_000, used: 3_100_000_000, pool: 2_000_000_000 } });
    if (path === "/metrics" && script.metrics) {
      response.writeHead(200, { "Content-Type": "text/plain" });
      return response.end(`# TYPE swiftlet_expert_cache_hits_total counter\nswiftlet_expert_cache_hits_total ${75 * Date.now()}\n` +
        `swiftlet_expert_cache_misses_total ${25 * Date.now()}\nswiftlet_storage_read_bytes_total ${1e6 * Date.now()}\nswiftlet_memory_bytes{kind="resident"} 2500000000\n`);
    }
    if (path === "/tokenize") return json(response, 200, { tokens: (await body(request)).content.match(/\S+/g) ?? [] });
    if (path === "/v1/chat/completions") return chat(request, response).catch(() => response.destroy());
    if (path === "/v1/chat/completions/control") {
      endThinking.add((await body(request)).id);
      return json(response, 200, { success: true });
    }
    fault(response, 404, "no such thing");
  });
  server.on("connection", (s) => {
    sockets.add(s);
    s.on("close", () => sockets.delete(s));
  });
  const listen = (port) => new Promise((go, fail) => server.once("error", fail).listen(port, "127.0.0.1", go));
  await listen(options.port ?? 0);
  const { port } = server.address();
  return {
    url: `http://127.0.0.1:${port}`, port, script, requests,
    stop: () => new Promise((go) => {
      sockets.forEach((s) => s.destroy());
      server.close(go);
    }),
    listenAgain: () => listen(port),
  };
}

if (process.argv[1] && import.meta.url.endsWith(process.argv[1].split("/").pop())) {
  const mock = await start({ page: process.argv[2], port: Number(process.argv[3] ?? 8099), text: "<think>Let me see.</think>Hello **there**.", delay: 50 });
  console.log(mock.url);
}
