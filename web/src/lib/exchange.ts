// Conversations as files. What comes in is hostile until it is checked: every member is read by type, unknown members
// are dropped, and every record gets a new name, so that an import never overwrites anything.

import type { Chat, Message, Options, TextFile, Thinking } from "../types";
import { dateTime } from "./format";
import { newId } from "./id";
import { T } from "../strings";

export const FORMAT = "swiftlet-chats";
const MAX_MESSAGES = 100000;
const LEVELS: Thinking[] = ["auto", "off", "on", "low", "medium", "high"];

export interface Bundle {
  chat: Chat;
  messages: Message[];
}

export function toJson(bundles: Bundle[]): string {
  const chats = bundles.map(({ chat, messages }) => ({ ...chat, messages: messages.map(({ owner, beat, ...m }) => m) }));
  return JSON.stringify({ format: FORMAT, version: 1, chats }, null, 1);
}

export function toMarkdown(chat: Chat, path: Message[]): string {
  const parts = [`# ${chat.title}`];
  if (chat.options.system) parts.push(`> ${chat.options.system.replace(/\n/g, "\n> ")}`);
  for (const m of path) {
    parts.push(`## ${m.role === "user" ? T.you : m.model || T.model}, ${dateTime(m.created)}`);
    for (const f of m.files ?? []) parts.push(fence(f.text, f.name));
    parts.push(m.text);
  }
  return parts.join("\n\n") + "\n";
}

// A fence longer than any run of backticks inside.
export function fence(text: string, label: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((s) => s.length));
  const ticks = "`".repeat(longest + 1);
  return `${ticks}${label.replace(/[`\n\r]/g, "")}\n${text.replace(/\n$/, "")}\n${ticks}`;
}

type Raw = Record<string, unknown>;
const isRaw = (x: unknown): x is Raw => typeof x === "object" && x !== null && !Array.isArray(x);
const str = (x: unknown, max = 10_000_000): string => (typeof x === "string" ? x.slice(0, max) : "");
const time = (x: unknown): number => (typeof x === "number" && x > 0 && x < 8.64e15 ? x : Date.now());
const opt = (x: unknown): number | undefined => (typeof x === "number" && Number.isFinite(x) ? x : undefined);

function readFiles(x: unknown): TextFile[] | undefined {
  if (!Array.isArray(x)) return undefined;
  return x.filter(isRaw).map((f) => ({ name: str(f.name, 300), size: opt(f.size) ?? 0, text: str(f.text) }));
}

function readOptions(x: unknown): Options {
  const o = isRaw(x) ? x : {};
  const out: Options = {};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"] as const) out[name] = opt(o[name]);
  if (typeof o.system === "string") out.system = str(o.system, 1_000_000);
  if (LEVELS.includes(o.thinking as Thinking)) out.thinking = o.thinking as Thinking;
  return out;
}

function readMessage(m: Raw, chat: string, names: Map<string, string>): Message {
  const status = m.status === "done" || m.role === "user" ? "done" : m.status === "stopped" ? "stopped" : "interrupted";
  return {
    id: names.get(str(m.id)) ?? newId(),
    chat,
    parent: names.get(str(m.parent)) ?? null,
    role: m.role === "user" ? "user" : "assistant",
    text: str(m.text),
    created: time(m.created),
    status,
    reasoning: str(m.reasoning) || undefined,
    thinkMs: opt(m.thinkMs),
    thinkTokens: opt(m.thinkTokens),
    finish: str(m.finish, 40) || undefined,
    model: str(m.model, 200) || undefined,
    files: readFiles(m.files),
  };
}

function readChat(c: Raw): Bundle {
  const id = newId();
  const raw = (Array.isArray(c.messages) ? c.messages : []).filter(isRaw).slice(0, MAX_MESSAGES);
  const names = new Map(raw.filter((m) => typeof m.id === "string").map((m) => [str(m.id), newId()]));
  const messages = raw.map((m) => readMessage(m, id, names));
  return {
    chat: {
      id,
      title: str(c.title, 200) || T.untitled,
      named: c.named === true,
      pinned: c.pinned === true,
      created: time(c.created),
      updated: time(c.updated),
      leaf: names.get(str(c.leaf)) ?? messages[messages.length - 1]?.id ?? null,
      options: readOptions(c.options),
    },
    messages,
  };
}

export function fromJson(text: string): Bundle[] {
  let all: unknown;
  try {
    all = JSON.parse(text);
  } catch {
    throw new Error(T.importNotJson);
  }
  if (!isRaw(all) || all.format !== FORMAT || !Array.isArray(all.chats)) throw new Error(T.importNotOurs);
  return all.chats.filter(isRaw).map(readChat);
}
