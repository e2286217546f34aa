// Asking for an answer and receiving it: attempts and pauses, live figures, and the text in steps of 40 to 100 ms.

import { computed, signal } from "@preact/signals";
import type { Fault, Message, Options, TextFile, Timings, ToolCall, Usage } from "../types";
import * as api from "../lib/api";
import { fence } from "../lib/exchange";
import { newId, TAB } from "../lib/id";
import { pathTo } from "../lib/tree";
import { T } from "../strings";
import { append, chats, claim, ensureChat, hold, keep, release, rescue, shown, type Conversation } from "./chats";
import { sample, watchCounters } from "./numbers";
import { say, showToast, speak, speakRest } from "./say";
import { canAnswerNow, noticed, pause, props } from "./server";

export type Phase = "connect" | "queue" | "loading" | "read" | "think" | "write" | "retry";

export interface Activity {
  message: string;
  phase: Phase;
  queue: number;
  progress: { done: number; total: number; cached: number; rate: number; eta: number } | null;
  rate: number;
  hits: number; // part of the experts found in memory; -1: unknown
  reads: number; // bytes a second; -1: unknown
  retryAt: number;
  why: string;
  request: string; // the server's id of the request, once known
}

export const activities = signal<Record<string, Activity>>({}); // by conversation
// What messages look at changes seldom, so that figures that change often do not draw them all again.
const running = computed(() => Object.keys(activities.value).join(" "));
export const busy = (chat: string | undefined): boolean => !!chat && running.value.split(" ").includes(chat);
export const thinking = computed(() => Object.values(activities.value).filter((a) => a.phase === "think").map((a) => a.message).join(" "));

const aborts = new Map<string, AbortController>();
const wakers = new Map<string, () => void>();

export const lastCost = { ms: 0 }; // of drawing the text's last step, kept by the view

const SAVE_EVERY = 1000;

// From the moment on at which an answer is asked for, a conversation is busy.
function begin(chat: string, message: string): void {
  aborts.set(chat, new AbortController());
  activities.value = {
    ...activities.value,
    [chat]: { message, phase: "connect", queue: 0, progress: null, rate: 0, hits: -1, reads: -1, retryAt: 0, why: "", request: "" },
  };
}

function update(chat: string, change: Partial<Activity>): void {
  const old = activities.value[chat];
  if (old) activities.value = { ...activities.value, [chat]: { ...old, ...change } };
}

function finish(chat: string): void {
  const { [chat]: _gone, ...rest } = activities.value;
  activities.value = rest;
  aborts.delete(chat);
  wakers.delete(chat);
}

// --- The request ------------------------------------------------------------------------------------------------------

export function contentOf(m: Message): string {
  const files = (m.files ?? []).map((f) => fence(f.text, f.name));
  return [...files, m.text].filter(Boolean).join("\n\n");
}

function messagesFor(path: Message[], o: Options, prefill: boolean): object[] {
  const list: object[] = [];
  if (o.system?.trim()) list.push({ role: "system", content: o.system });
  path.forEach((m, i) => {
    if (m.role === "user") list.push({ role: "user", content: contentOf(m) });
    else if (m.text || (prefill && i === path.length - 1))
      list.push({ role: "assistant", content: m.text, ...(m.reasoning ? { reasoning_content: m.reasoning } : {}) });
  });
  return list;
}

function thinkingFields(o: Options): object {
  switch (o.thinking) {
    case "off":
      return { chat_template_kwargs: { enable_thinking: false } };
    case "on":
      return { chat_template_kwargs: { enable_thinking: true } };
    case "low":
    case "medium":
    case "high":
      return { reasoning_effort: o.thinking };
    default:
      return {};
  }
}

function bodyFor(path: Message[], o: Options, prefill: boolean): object {
  const numbers: Record<string, number> = {};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"] as const)
    if (o[name] !== undefined) numbers[name] = o[name]!;
  return {
    ...(o.model ? { model: o.model } : {}),
    messages: messagesFor(path, o, prefill),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    timings_per_token: true,
    ...numbers,
    ...thinkingFields(o),
    ...(prefill ? { continue_final_message: true, add_generation_prompt: false } : {}),
  };
}

// --- Receiving --------------------------------------------------------------------------------------------------------

const num = (x: unknown): number => (typeof x === "number" && Number.isFinite(x) ? x : 0);

function readTimings(t: any): Timings {
  const c = t.cache ?? {};
  return {
    prompt_n: num(t.prompt_n), prompt_ms: num(t.prompt_ms), predicted_n: num(t.predicted_n),
    predicted_ms: num(t.predicted_ms), hits: num(c.expert_hits), misses: num(c.expert_misses), bytes: num(c.bytes_read),
  };
}

function readUsage(u: any): Usage {
  return {
    prompt_tokens: num(u.prompt_tokens), completion_tokens: num(u.completion_tokens), total_tokens: num(u.total_tokens),
    cached: num(u.prompt_tokens_details?.cached_tokens), reasoning: num(u.completion_tokens_details?.reasoning_tokens),
  };
}

// One answer while it is received. Text is collected and shown in steps.
class Receiver {
  private text = "";
  private reasoning = "";
  private timer = 0;
  private saved = 0;
  private thinkBegan = 0;
  private thinkBefore: number; // ms of thinking before this request
  private first = 0;
  private tokens = 0;
  private seen: { at: number; t: Timings } | null = null;
  got = false; // something that is worth keeping
  lost = false; // another tab has taken the answer, or removed it

  constructor(private conv: Conversation, public m: Message) {
    this.thinkBefore = m.thinkMs ?? 0;
  }

  chunk(c: any): void {
    if (typeof c.id === "string" && c.id && activities.value[this.conv.id]?.request !== c.id) update(this.conv.id, { request: c.id });
    if (c.prompt_progress) this.progress(c.prompt_progress);
    const queue = c.queue_position ?? c.prompt_progress?.queue_position;
    if (typeof queue === "number" && queue > 0) update(this.conv.id, { phase: "queue", queue });
    const choice = Array.isArray(c.choices) ? c.choices[0] : null;
    if (choice) this.choice(choice);
    if (c.timings) this.figures(readTimings(c.timings));
    if (c.usage) this.change({ usage: readUsage(c.usage) });
    if (typeof c.model === "string" && c.model !== this.m.model) this.change({ model: c.model });
    if (Date.now() - this.saved > SAVE_EVERY) this.save();
  }

  private choice(choice: any): void {
    const d = choice.delta ?? {};
    const thought = typeof d.reasoning_content === "string" ? d.reasoning_content : typeof d.reasoning === "string" ? d.reasoning : "";
    if (thought) this.think(thought);
    if (typeof d.content === "string" && d.content) this.write(d.content);
    if (Array.isArray(d.tool_calls)) this.call(d.tool_calls);
    if (typeof choice.finish_reason === "string") this.change({ finish: choice.finish_reason });
  }

  private progress(p: any): void {
    const total = num(p.total);
    const done = num(p.processed);
    const cached = num(p.cached);
    const s = num(p.time_ms) / 1000;
    const rate = s > 0 ? Math.max(0, done - cached) / s : 0;
    if (this.got || !total) return;
    update(this.conv.id, { phase: "read", progress: { done, total, cached, rate, eta: rate ? (total - done) / rate : 0 } });
  }

  private began(phase: Phase): void {
    if (!this.first) {
      this.first = performance.now();
      noticed("ok");
    }
    this.got = true;
    if (activities.value[this.conv.id]?.phase !== phase) update(this.conv.id, { phase });
  }

  private think(s: string): void {
    this.began("think");
    this.thinkBegan ||= performance.now();
    this.reasoning += s;
    this.count();
  }

  private write(s: string): void {
    this.began("write");
    this.endThinking();
    this.text += s;
    speak(s);
    this.count();
  }

  private endThinking(): void {
    if (!this.thinkBegan) return;
    this.change({ thinkMs: this.thinkBefore + performance.now() - this.thinkBegan, thinkTokens: (this.m.thinkTokens ?? 0) + this.tokens });
    this.thinkBegan = 0;
  }

  private call(list: any[]): void {
    this.began("write");
    this.endThinking();
    const calls: ToolCall[] = [...(this.m.calls ?? [])];
    for (const c of list) {
      const i = num(c?.index);
      if (i < 0 || i > 1000) continue;
      const old = calls[i] ?? { id: "", name: "", args: "" };
      calls[i] = { id: old.id || String(c.id ?? ""), name: old.name || String(c.function?.name ?? ""), args: old.args + String(c.function?.arguments ?? "") };
    }
    this.change({ calls: calls.filter(Boolean) });
  }

  // Without figures from the server a chunk counts as a token. The first is shown at once.
  private count(): void {
    if (!this.tokens++) this.flush();
    else if (!this.timer) this.timer = window.setTimeout(() => this.flush(), Math.min(100, Math.max(40, 4 * lastCost.ms)));
    const s = (performance.now() - this.first) / 1000;
    if (!this.seen && s > 0.5) {
      update(this.conv.id, { rate: (this.tokens - 1) / s });
      sample({ rate: (this.tokens - 1) / s });
    }
  }

  // Rates of the last half second or more, from the server's counters.
  private figures(t: Timings): void {
    this.change({ timings: t });
    const now = performance.now();
    if (!this.seen) this.seen = { at: now, t };
    const before = this.seen;
    const ms = t.predicted_ms - before.t.predicted_ms;
    if (now - before.at < 500) return;
    const looked = t.hits + t.misses - before.t.hits - before.t.misses;
    const rate = ms > 0 ? (1000 * (t.predicted_n - before.t.predicted_n)) / ms : t.predicted_ms > 0 ? (1000 * t.predicted_n) / t.predicted_ms : 0;
    this.seen = { at: now, t };
    update(this.conv.id, { rate });
    sample({ rate });
    if (looked > 0) this.store((t.hits - before.t.hits) / looked, (1000 * (t.bytes - before.t.bytes)) / (now - before.at));
  }

  // Of the expert store. A server that tells them at the end only has counters of its own, which are looked at meanwhile.
  store(hits: number, reads: number): void {
    update(this.conv.id, { hits, reads });
    sample({ hits, reads });
  }

  private change(c: Partial<Message>): void {
    this.m = { ...this.m, ...c };
  }

  flush(): void {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.text) this.change({ text: this.m.text + this.text });
    if (this.reasoning) this.change({ reasoning: (this.m.reasoning ?? "") + this.reasoning });
    this.text = this.reasoning = "";
    this.conv.set(this.m);
  }

  save(): void {
    this.saved = Date.now();
    this.flush();
    this.change({ beat: Date.now() });
    void this.keep();
  }

  private async keep(): Promise<void> {
    if (await keep(this.m)) return;
    this.lost = true;
    stop(this.conv.id);
  }

  async end(c: Partial<Message>): Promise<void> {
    if (this.lost) return;
    this.flush();
    this.endThinking();
    if (this.m.usage?.reasoning) this.change({ thinkTokens: this.m.usage.reasoning });
    this.change({ ...c, owner: undefined, beat: undefined });
    this.conv.set(this.m);
    await this.keep();
  }
}

// --- Attempts ---------------------------------------------------------------------------------------------------------

const receiving = new Set<Receiver>();

function sleepFor(chat: string, s: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const go = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", go);
      resolve();
    };
    const timer = setTimeout(go, 1000 * s);
    signal.addEventListener("abort", go);
    wakers.set(chat, go);
  });
}

// Faults that pass by themselves, as long as nothing of the answer came.
const passing = (f: Fault): boolean => f.kind === "down" || f.kind === "busy" || f.kind === "loading";

async function attempt(r: Receiver, body: object, signal: AbortSignal): Promise<api.ApiError | null> {
  try {
    await api.chat(body, signal, (chunk) => r.chunk(chunk));
    return null;
  } catch (e) {
    if (signal.aborted) return null;
    const error = e instanceof api.ApiError ? e : new api.ApiError("server", String((e as Error)?.message ?? e));
    if (["down", "key", "loading"].includes(error.kind)) noticed(error.kind as "down" | "key" | "loading");
    return error;
  }
}

// `start` is the answer as this tab has begun or claimed it.
async function run(conv: Conversation, start: Message, prefill: boolean): Promise<void> {
  const o = chats.value.find((c) => c.id === conv.id)?.options ?? {};
  const path = pathTo(conv.all, start.parent);
  const body = bodyFor(prefill ? [...path, start] : path, o, prefill);
  const abort = aborts.get(conv.id)!;
  const r = new Receiver(conv, start);
  conv.set(start);
  hold(start.id, () => r.save());
  receiving.add(r);
  const unwatch = watchCounters((hits, reads) => r.m.timings?.hits || r.store(hits, reads));
  let error: api.ApiError | null = null;
  for (let n = 0; ; n++) {
    error = await attempt(r, body, abort.signal);
    if (!error || r.got || !passing(error.fault) || abort.signal.aborted) break;
    const s = error.retryAfter || pause(n);
    update(conv.id, { phase: error.kind === "loading" ? "loading" : "retry", why: error.kind === "busy" ? T.busyText : error.message, retryAt: Date.now() + 1000 * s, progress: null });
    if (!n) say(error.kind === "busy" ? T.busyText : error.message);
    await sleepFor(conv.id, s, abort.signal);
    if (abort.signal.aborted) break;
    update(conv.id, { phase: "connect" });
  }
  unwatch();
  const stopped = abort.signal.aborted;
  await r.end(stopped ? { status: "stopped" }
    : error ? { status: r.got && error.kind === "down" ? "interrupted" : "error", fault: error.fault } : { status: "done" });
  receiving.delete(r);
  await release(start.id, r.lost);
  finish(conv.id);
  speakRest();
  if (!r.lost) say(stopped ? T.stoppedStatus : error ? error.message : T.doneStatus(r.m.usage?.completion_tokens ?? r.m.timings?.predicted_n ?? 0));
}

// --- What the reader does ---------------------------------------------------------------------------------------------

function fresh(conv: Conversation, parent: string | null, role: Message["role"], text: string, files?: TextFile[]): Message {
  return { id: newId(), chat: conv.id, parent, role, text, created: Date.now(), status: "done", ...(files?.length ? { files } : {}) };
}

// The messages are shown and the request is sent at once; that they are stored is not waited for.
async function ask(conv: Conversation, question: Message | null, parent: string | null): Promise<void> {
  const answer: Message = { ...fresh(conv, question?.id ?? parent, "assistant", ""), status: "streaming", owner: TAB, beat: Date.now() };
  if (question) answer.created = question.created + 1;
  begin(conv.id, answer.id);
  void append(conv, question ? [question, answer] : [answer]);
  if (question) say(T.sentStatus);
  await run(conv, answer, false);
}

// Where a new question goes: after the last message, but beside a question that another tab is having answered.
function settled(conv: Conversation): string | null {
  const path = pathTo(conv.all, conv.leaf.value);
  const open = path.findIndex((m) => m.status === "streaming");
  return open < 0 ? conv.leaf.value : path[open - 1]?.parent ?? null;
}

export async function send(text: string, files: TextFile[]): Promise<void> {
  const conv = ensureChat(text || files[0]?.name || "");
  if (busy(conv.id)) return;
  const question = fresh(conv, settled(conv), "user", text, files);
  await ask(conv, question, question.parent);
}

export async function editAndSend(conv: Conversation, old: Message, text: string): Promise<void> {
  if (!busy(conv.id)) await ask(conv, fresh(conv, old.parent, "user", text, old.files), old.parent);
}

export async function regenerate(conv: Conversation, old: Message): Promise<void> {
  if (!busy(conv.id)) await ask(conv, null, old.parent);
}

// Goes on with an answer that is not whole; one of which nothing came is asked for again.
export async function goOn(conv: Conversation, m: Message): Promise<void> {
  if (busy(conv.id)) return;
  begin(conv.id, m.id);
  const start = await claim(m);
  if (start) return run(conv, start, !!(start.text || start.reasoning));
  finish(conv.id);
  showToast({ text: T.elsewhere });
}

export function stop(chat: string): void {
  aborts.get(chat)?.abort();
}

export function retryNow(chat: string): void {
  wakers.get(chat)?.();
}

// After a key was given: what failed for want of it is asked again.
export async function retryKeyless(): Promise<void> {
  const conv = shown.value;
  const last = conv?.last();
  if (conv && last?.fault?.kind === "key") await goOn(conv, last);
}

export async function answerNow(chat: string): Promise<void> {
  const a = activities.value[chat];
  if (!a?.request || (await api.answerNow(a.request))) return;
  canAnswerNow.value = false;
  showToast({ text: T.noAnswerNow });
}

// Part of the context that the conversation takes, as far as the server has said.
export function contextUsed(conv: Conversation | null): number {
  if (!conv) return 0;
  const path = pathTo(conv.all, conv.leaf.value);
  for (let i = path.length - 1; i >= 0; i--) {
    const { usage, timings } = path[i];
    if (usage) return usage.total_tokens || usage.prompt_tokens + usage.completion_tokens;
    if (timings && path[i].status === "streaming") return timings.prompt_n + timings.predicted_n;
  }
  return 0;
}

export const contextLimit = (): number => props.value?.context ?? 0;

// What came since the last save. (A browser ends requests before it tells the page, which then takes the answer for cut
// off, but cannot store it any more.)
export function keepOnLeave(): void {
  addEventListener("pagehide", () => receiving.forEach((r) => {
    r.save();
    rescue(r.m);
  }));
}

