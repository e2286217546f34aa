// A code block: language, copy, wrap, download. Built from elements, never from text; the buttons' clicks are handled by
// the list that holds the messages.

import { T } from "../strings";
import { ending } from "./highlight";
import { copyText, save } from "../lib/files";
import { icon } from "../ui/icon-paths";

const SVG = "http://www.w3.org/2000/svg";

function svg(name: keyof typeof icon): SVGElement {
  const s = document.createElementNS(SVG, "svg");
  s.setAttribute("viewBox", "0 0 24 24");
  s.setAttribute("class", "icon");
  s.setAttribute("aria-hidden", "true");
  const p = document.createElementNS(SVG, "path");
  p.setAttribute("d", icon[name]);
  s.append(p);
  return s;
}

function button(act: string, name: keyof typeof icon, label: string): HTMLButtonElement {
  const b = document.createElement("button");
  b.type = "button";
  b.dataset.act = act;
  b.className = "code-button";
  b.title = label;
  b.setAttribute("aria-label", label);
  b.append(svg(name));
  return b;
}

export function codeBlock(pre: HTMLElement): HTMLElement {
  const language = pre.title;
  pre.removeAttribute("title");
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", T.codeIn(language));
  pre.setAttribute("role", "region");
  const figure = document.createElement("figure");
  figure.className = "code";
  figure.dataset.language = language;
  const caption = document.createElement("figcaption");
  const label = document.createElement("span");
  label.textContent = language || T.codePlain;
  const wrap = button("wrap", "wrap", T.codeWrap);
  wrap.setAttribute("aria-pressed", "false");
  caption.append(label, wrap, button("save", "download", T.codeSave), button("copy", "copy", T.codeCopy));
  figure.append(caption, pre);
  return figure;
}

// A click somewhere in the messages; true when it was on a code block's button.
export function codeClick(e: Event, say: (text: string) => void): boolean {
  const b = (e.target as Element).closest<HTMLElement>("button[data-act]");
  const figure = b?.closest<HTMLElement>("figure.code");
  if (!b || !figure) return false;
  const text = figure.querySelector("code")?.textContent ?? "";
  if (b.dataset.act === "copy") void copyText(text).then((ok) => say(ok ? T.copied : T.copyFailed));
  else if (b.dataset.act === "save") save(`code.${ending(figure.dataset.language ?? "")}`, text, "text/plain");
  else b.setAttribute("aria-pressed", String(figure.classList.toggle("wrapped")));
  return true;
}
