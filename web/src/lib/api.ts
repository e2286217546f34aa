// The server as any client sees it. Faults become ApiError, with what kind of fault it is.

import type { Fault, FaultKind, Model, Props } from "../types";
import { T } from "../strings";
import { SseParser } from "./sse";

export class ApiError extends Error {
  constructor(readonly kind: FaultKind, message: string, readonly retryAfter = 0, readonly status = 0) {
    super(message);
  }
  get fault(): Fault {
    return { kind: this.kind, text: this.message };
  }
}

// Where the server is, when it is another computer than this; else empty.
export const remoteHost = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname) ? "" : location.hostname;

const KEY = "swiftlet.key";
let memoryKey = "";

export function apiKey(): string {
  try {
    return sessionStorage.getItem(KEY) ?? memoryKey;
  } catch {
    return memoryKey;
  }
}

export function setApiKey(key: string): void {
  memoryKey = key;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // Then it lasts as long as the page.
  }
}

function kindOf(status: number, code: unknown): FaultKind {
  if (code === "context_length_exceeded") return "full";
  if (status === 401 || status === 403) return status === 401 ? "key" : "refused";
  if (status === 429) return "busy";
  if (status === 503) return "loading";
  return status >= 500 ? "server" : "refused";
}

function errorFrom(body: unknown, status: number, retryAfter: number): ApiError {
  const error = (body as { error?: unknown } | null)?.error;
  const e = (typeof error === "object" && error ? error : {}) as { message?: unknown; code?: unknown };
  const text = typeof e.message === "string" ? e.message : typeof error === "string" ? error : T.errStatus(status);
  return new ApiError(kindOf(status, e.code), text, retryAfter, status);
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = apiKey();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  if (init.body) headers.set("Content-Type", "application/json");
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new ApiError("down", T.errDown);
  }
  if (response.ok) return response;
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  throw errorFrom(await response.json().catch(() => null), response.status, retryAfter);
}

async function get(path: string): Promise<any> {
  try {
    return await (await request(path)).json();
  } catch (e) {
    throw e instanceof ApiError ? e : new ApiError("server", T.errReply);
  }
}

const num = (x: unknown, otherwise = 0): number => (typeof x === "number" && Number.isFinite(x) ? x : otherwise);

export async function models(): Promise<Model[]> {
  const list = (await get("/v1/models")).data;
  if (!Array.isArray(list)) throw new ApiError("server", T.errReply);
  return list.filter((m) => typeof m?.id === "string").map((m) => ({
    id: m.id, size: num(m.meta?.size), context: num(m.max_model_len, num(m.meta?.n_ctx)), params: num(m.meta?.n_params),
  }));
}

export async function props(): Promise<Props> {
  const p = await get("/props");
  const d = p.default_generation_settings ?? {};
  const params = d.params ?? d;
  const sampling: Record<string, number> = {};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "n_predict"])
    if (typeof params[name] === "number") sampling[name] = params[name];
  const m = p.memory;
  const caps = p.chat_template_caps ?? {};
  const template = typeof p.chat_template === "string" ? p.chat_template : "";
  const can = (cap: unknown, variable: string) => (typeof cap === "boolean" ? cap : template.includes(variable));
  return {
    context: num(p.n_ctx, num(d.n_ctx)),
    sampling,
    memory: m ? { budget: num(m.budget), used: num(m.used), pool: num(m.pool) } : null,
    build: typeof p.build_info === "string" ? p.build_info : "",
    thinking: { switch: can(caps.supports_thinking_switch, "enable_thinking"), effort: can(caps.supports_reasoning_effort, "reasoning_effort") },
  };
}

export interface Counters {
  hits: number;
  misses: number;
  bytes: number; // read from the drive
  resident: number; // memory of the process; 0: unknown
}

// The server's counters since its start; null when it has none.
export async function counters(): Promise<Counters | null> {
  try {
    const text = await (await request("/metrics")).text();
    const value = (name: string) => Number(text.match(new RegExp(`^swiftlet_${name} (\\S+)`, "m"))?.[1] ?? NaN);
    const c = { hits: value("expert_cache_hits_total"), misses: value("expert_cache_misses_total"),
      bytes: value("storage_read_bytes_total"), resident: value('memory_bytes\\{kind="resident"\\}') || 0 };
    return Number.isFinite(c.hits + c.misses + c.bytes) ? c : null;
  } catch {
    return null;
  }
}

export async function health(): Promise<boolean> {
  try {
    await request("/health");
    return true;
  } catch (e) {
    if (e instanceof ApiError && e.kind === "loading") throw e;
    return false;
  }
}

export async function tokenCount(content: string, signal: AbortSignal): Promise<number> {
  const r = await request("/tokenize", { method: "POST", body: JSON.stringify({ content }), signal });
  const { tokens } = await r.json();
  return Array.isArray(tokens) ? tokens.length : 0;
}

// Ends the thinking of an answer that is being written; false when this server cannot.
export async function answerNow(id: string): Promise<boolean> {
  try {
    await request("/v1/chat/completions/control", { method: "POST", body: JSON.stringify({ id, action: "reasoning_end" }) });
    return true;
  } catch {
    return false;
  }
}

// Sends a chat request and calls `event` for each chunk until the stream ends. A stream that stops without its last
// mark is a fault: "down", so that the caller can offer to go on.
export async function chat(body: object, signal: AbortSignal, event: (chunk: any) => void): Promise<void> {
  const response = await request("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  if (!response.body) throw new ApiError("server", T.errReply);
  let done = false;
  let fault: ApiError | null = null;
  const parser = new SseParser((data) => {
    if (data === "[DONE]") {
      done = true;
      return;
    }
    let chunk: any;
    try {
      chunk = JSON.parse(data);
    } catch {
      fault = new ApiError("server", T.errReply);
      return;
    }
    if (chunk?.error) fault ??= errorFrom(chunk, 500, 0);
    else event(chunk);
  });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  try {
    while (!done && !fault) {
      const { value, done: ended } = await reader.read();
      if (ended) break;
      parser.push(decoder.decode(value, { stream: true }));
    }
  } catch (e) {
    if (signal.aborted) throw e;
  }
  void reader.cancel().catch(() => {});
  if (fault) throw fault;
  if (!done) throw new ApiError("down", T.errCut);
}
