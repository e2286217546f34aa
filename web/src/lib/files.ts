// Files that may be attached: text, by name or by what is inside. Everything else is refused by name.

import type { TextFile } from "../types";
import { T } from "../strings";
import { bytes } from "./format";

export const MAX_FILE = 4_000_000;
export const LONG_PASTE = 4000; // characters from which a paste becomes a file
const KNOWN = /\.(txt|text|log|md|markdown|rst|csv|tsv|json|jsonl|xml|html?|css|s[ac]ss|[cm]?[jt]sx?|py|pyi|ipynb|c|h|cc|cpp|cxx|hpp|inc|rs|go|java|kt|swift|rb|php|pl|lua|r|jl|sh|bash|zsh|fish|ps1|bat|sql|ya?ml|toml|ini|cfg|conf|env|tex|bib|diff|patch|cmake|mk|gradle|proto|graphql|vue|svelte|srt|vtt|svg)$/i;

export async function readText(file: File): Promise<TextFile> {
  if (file.size > MAX_FILE) throw new Error(T.fileTooLong(file.name, bytes(MAX_FILE)));
  if (!KNOWN.test(file.name) && !file.type.startsWith("text/") && /\.\w+$/.test(file.name))
    throw new Error(T.fileRefused(file.name));
  const data = new Uint8Array(await file.arrayBuffer());
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    throw new Error(T.fileRefused(file.name));
  }
  if (text.includes("\0")) throw new Error(T.fileRefused(file.name));
  return { name: file.name, size: file.size, text };
}

export function save(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Not a secure context, or not allowed: the old way still works after a click.
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  const ok = document.execCommand("copy");
  area.remove();
  return ok;
}
