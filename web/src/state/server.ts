// What is known of the server: is it there, its models, defaults and memory. Asked at start, after faults with growing
// pauses, and now and then while the page is looked at.

import { signal } from "@preact/signals";
import type { Model, Props } from "../types";
import * as api from "../lib/api";

export type ServerState = "start" | "ok" | "loading" | "down" | "key";

export const server = signal<ServerState>("start");
export const models = signal<Model[]>([]);
export const props = signal<Props | null>(null);
export const keyNeeded = signal(false);
export const canAnswerNow = signal(true); // until the server says that it cannot

const PAUSES = [1, 2, 4, 8, 15]; // seconds between attempts
export const pause = (attempt: number): number => PAUSES[Math.min(attempt, PAUSES.length - 1)];

const REFRESH = 15000;
let timer = 0;
let attempts = 0;

export async function refresh(): Promise<void> {
  clearTimeout(timer);
  try {
    const [list, p] = await Promise.all([api.models(), api.props().catch(optional)]);
    models.value = list;
    if (p) props.value = p;
    server.value = "ok";
    keyNeeded.value = false;
    attempts = 0;
    timer = window.setTimeout(check, REFRESH);
  } catch (e) {
    failed(e);
  }
}

// A server may do without /props; a missing key or a server that is away matters all the same.
function optional(e: unknown): null {
  if (e instanceof api.ApiError && (e.kind === "refused" || e.kind === "server")) return null;
  throw e;
}

function failed(e: unknown): void {
  const kind = e instanceof api.ApiError ? e.kind : "down";
  if (kind === "key") {
    server.value = "key";
    keyNeeded.value = true;
    return;
  }
  server.value = kind === "loading" ? "loading" : "down";
  timer = window.setTimeout(refresh, 1000 * pause(kind === "loading" ? 1 : attempts++));
}

async function check(): Promise<void> {
  timer = window.setTimeout(check, REFRESH);
  if (document.hidden) return;
  try {
    if (!(await api.health())) throw new api.ApiError("down", "");
  } catch (e) {
    clearTimeout(timer);
    failed(e);
  }
}

// A request noticed that the server is away or has come back.
export function noticed(state: ServerState): void {
  if (state === "ok" && server.value !== "ok") void refresh();
  else if (state === "key") failed(new api.ApiError("key", ""));
  else if (state !== "ok" && server.value === "ok") failed(new api.ApiError(state === "loading" ? "loading" : "down", ""));
}

export async function refreshMemory(): Promise<void> {
  try {
    const [p, c] = await Promise.all([api.props(), api.counters()]);
    // The plan says what is set aside, the process what it has.
    if (p.memory && c?.resident) p.memory.used = c.resident;
    props.value = p;
  } catch {
    // The next look at the server says what is wrong.
  }
}

export async function useKey(key: string): Promise<boolean> {
  api.setApiKey(key);
  await refresh();
  return !keyNeeded.value;
}

export function watchServer(): void {
  void refresh();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void (server.value === "ok" ? check() : refresh());
  });
}
