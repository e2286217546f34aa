// Colours for twelve languages, each part a span with a class.

import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import { toFragment } from "./sanitize";

const languages = { bash, cpp, css, go, java, javascript, json, python, rust, sql, typescript, xml };
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);
hljs.registerAliases(["c", "h", "cuda"], { languageName: "cpp" });
hljs.registerAliases(["console", "shell", "zsh"], { languageName: "bash" });
hljs.configure({ throwUnescapedHTML: false });

const LIMIT = 40_000; // characters; longer code stays plain, because colouring it would stop the page

export function highlight(code: HTMLElement, language: string): void {
  const text = code.textContent ?? "";
  if (!text || text.length > LIMIT || !hljs.getLanguage(language)) return;
  const html = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  code.replaceChildren(toFragment(html));
}

// The usual file ending for a download.
const ENDINGS: Record<string, string> = { bash: "sh", cpp: "cpp", javascript: "js", typescript: "ts", python: "py", rust: "rs",
  xml: "html", markdown: "md", yaml: "yaml" };

export function ending(language: string): string {
  const l = language.toLowerCase();
  if (ENDINGS[l]) return ENDINGS[l];
  return /^[a-z0-9]{1,8}$/.test(l) ? l : "txt";
}
