// One answer in the page while it grows. Blocks that are finished are rendered once; the last one, which may still
// change, is parsed again at each step and merged into the page.

import { blocks, complete, toHtml, plainOnly, type Block } from "./parse";
import { codeBlock } from "./code";
import { highlight } from "./highlight";
import { morph } from "./morph";
import { toFragment } from "./sanitize";
import { T } from "../strings";

const SLICE = 10; // ms of rendering before the browser gets its turn

// A block stays in the box that it grew in: moving its nodes would take a selection away.
function newBox(): HTMLElement {
  const box = document.createElement("div");
  box.className = "block";
  return box;
}

// Headings below the message's own, which is the second level: no level is left out, whatever the answer's marks say.
// `outer` holds the depths of the headings that are open.
function setLevels(fragment: DocumentFragment, outer: number[]): void {
  for (const h of fragment.querySelectorAll<HTMLElement>("h3")) {
    const depth = Number(h.className.slice(1)) || 1;
    while (outer.length && outer[outer.length - 1] >= depth) outer.pop();
    outer.push(depth);
    if (outer.length === 1) continue;
    const other = document.createElement(`h${Math.min(6, 2 + outer.length)}`);
    other.className = h.className;
    other.append(...h.childNodes);
    h.replaceWith(other);
  }
}

function build(block: Block, outer: number[]): DocumentFragment {
  const fragment = toFragment(toHtml(block));
  setLevels(fragment, outer);
  for (const pre of fragment.querySelectorAll("pre")) {
    const hold = document.createComment("");
    pre.replaceWith(hold);
    hold.replaceWith(codeBlock(pre));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const box = document.createElement("div");
    box.className = "table";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", T.table);
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}

export class AnswerView {
  private text = ""; // all that was given
  private closed = 0; // how much of it is rendered for good
  private open: HTMLElement | null = null; // holds the block that may still change
  private later = 0;
  private headings: number[] = [];
  private done = false;

  // `drawn` is called when all of the text that was set is in the page.
  constructor(private root: HTMLElement, private drawn: () => void) {}

  set(text: string, done: boolean): void {
    text = text.replace(/\r\n?/g, "\n");
    // An answer that goes on may go on in the middle of its last block.
    if (!text.startsWith(this.text) || (this.done && !done)) this.reset();
    this.text = text;
    this.done = done;
    if (!this.later) this.step();
  }

  stop(): void {
    cancelAnimationFrame(this.later);
    this.later = 0;
  }

  private reset(): void {
    this.stop();
    this.root.replaceChildren();
    this.closed = 0;
    this.open = null;
    this.headings = [];
  }

  private step(): void {
    const begin = performance.now();
    const list = blocks(this.text.slice(this.closed));
    let last = list.length;
    if (!this.done) while (last > 0 && list[last - 1].token.type === "space") last--;
    if (!this.done) last--;
    for (let i = 0; i < last; i++) {
      this.close(list[i]);
      if (i + 1 < last && performance.now() - begin > SLICE) {
        this.later = requestAnimationFrame(() => {
          this.later = 0;
          this.step();
        });
        return;
      }
    }
    if (this.done) this.dropOpen();
    else this.grow(list.slice(Math.max(0, last)).map((b) => b.raw).join(""));
    this.drawn();
  }

  private dropOpen(): void {
    this.open?.remove();
    this.open = null;
  }

  private close(block: Block): void {
    this.closed += block.raw.length;
    if (block.token.type === "space" || block.token.type === "def") return;
    const box = this.open ?? newBox();
    if (this.open) {
      morph(box, build(block, this.headings));
      box.classList.remove("open");
      this.open = null;
    } else {
      box.append(build(block, this.headings));
      this.root.append(box);
    }
    box.querySelectorAll<HTMLElement>("figure.code").forEach(paintLater);
  }

  private grow(raw: string): void {
    if (!raw.trim()) return;
    if (!this.open) {
      this.open = newBox();
      this.open.classList.add("open");
      this.root.append(this.open);
    }
    const isCode = /^ {0,3}(```|~~~)/.test(raw);
    const shown = isCode || raw.length > 20_000 || plainOnly(raw) ? raw : complete(raw);
    const fragment = document.createDocumentFragment();
    for (const b of blocks(shown)) if (b.token.type !== "space") fragment.append(build(b, [...this.headings]));
    morph(this.open, fragment);
  }
}

const idle: (f: () => void) => void =
  typeof requestIdleCallback === "function" ? (f) => requestIdleCallback(f, { timeout: 1000 }) : (f) => setTimeout(f, 50);

function paintLater(figure: HTMLElement): void {
  idle(() => {
    const code = figure.querySelector<HTMLElement>("code");
    // Colouring replaces the text's nodes, which would take a selection away; such code stays plain.
    const selection = document.getSelection();
    if (!code || (selection && !selection.isCollapsed && selection.containsNode(code, true))) return;
    const language = (figure.dataset.language ?? "").toLowerCase();
    figure.querySelector("pre")?.setAttribute("data-language", language);
    highlight(code, language);
  });
}
