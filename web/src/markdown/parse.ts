// Markdown to HTML text. Raw HTML is text, images are links (an image's address can carry data out), and only http,
// https and mailto addresses become links. What comes out still goes through sanitize.ts.

import { Marked, type Token } from "marked";
import { T } from "../strings";

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
export const escape = (s: string): string => s.replace(/[&<>"']/g, (c) => ESCAPES[c]);

export function safeUrl(href: string): string | null {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null; // relative addresses too: they would point into this server
  }
}

function link(href: string, inner: string, plain: string): string {
  const url = safeUrl(href);
  return url ? `<a href="${escape(url)}" title="${escape(url)}">${inner}</a>` : plain;
}

const md = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html({ raw }) {
      return escape(raw);
    },
    code({ text, lang }) {
      return `<pre title="${escape((lang ?? "").trim().split(/\s/)[0].slice(0, 40))}"><code>${escape(text)}</code></pre>`;
    },
    link({ href, tokens, raw }) {
      return link(href, this.parser.parseInline(tokens), escape(raw));
    },
    image({ href, text, raw }) {
      return link(href, escape(T.image(text)), escape(raw));
    },
    checkbox({ checked }) {
      return `<span class="task" role="img" aria-label="${escape(checked ? T.taskDone : T.taskOpen)}">${checked ? "☑" : "☐"}</span> `;
    },
    heading({ tokens, depth }) {
      // The view puts the level that fits into the page; the class keeps the one that was meant.
      return `<h3 class="h${depth}">${this.parser.parseInline(tokens)}</h3>`;
    },
  },
});

export interface Block {
  token: Token;
  raw: string;
}

export const LIMIT = 200_000; // characters of a block that is still parsed
const DEEP = /^[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*){25,}/m; // nesting nobody means
const BRACKETS = /(?:[[\]()*_~!`]\s?){400,}/; // runs on which an inline parser takes square time

export function plainOnly(text: string): boolean {
  return DEEP.test(text) || BRACKETS.test(text);
}

// The text's top-level blocks; their raw texts put together are the text.
export function blocks(text: string): Block[] {
  if (text.length > LIMIT || plainOnly(text)) return [{ token: { type: "text", raw: text, text } as Token, raw: text }];
  try {
    const tokens = md.lexer(text);
    if (tokens.reduce((n, t) => n + t.raw.length, 0) === text.length) return tokens.map((token) => ({ token, raw: token.raw }));
  } catch {
    // Too deep for the parser: shown as it is.
  }
  return [{ token: { type: "text", raw: text, text } as Token, raw: text }];
}

export function toHtml(block: Block): string {
  if (block.token.type === "text") return `<p class="plain">${escape(block.raw)}</p>`;
  try {
    return md.parser([block.token]);
  } catch {
    return `<p class="plain">${escape(block.raw)}</p>`;
  }
}

// While a block grows: constructs that are still open are closed, so that their marks do not flicker as text.
export function complete(text: string): string {
  let s = text.replace(/!?\[([^\][\n]*)\]\([^)\s]*$/, "$1"); // a link whose address is not there yet
  s = s.replace(/(^|[\s(])(\*{1,3}|_{1,3}|~~|`{1,2})$/, "$1"); // a mark with nothing after it
  const line = s.slice(s.lastIndexOf("\n\n") + 1);
  const outside = line.replace(/(`+)[\s\S]*?[^`]\1(?!`)/g, "").replace(/\\[*_~`]/g, "");
  const tick = outside.match(/(`+)(?=[^`]+$)/);
  if (tick) return s + tick[1];
  const open = (mark: RegExp) => (outside.match(mark)?.length ?? 0) % 2 === 1;
  let close = "";
  if (open(/(?<!\*)\*(?!\*|\s)|(?<=\S)(?<!\*)\*(?!\*)/g) && !/^\s*\*\s/.test(line)) close += "*";
  if (open(/\*\*/g)) close += "**";
  if (open(/~~/g)) close += "~~";
  return close ? s.replace(/\s+$/, "") + close : s;
}
