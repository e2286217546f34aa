// What is said beside the messages: state changes and short notes (toasts), and new text for screen readers.

import { signal } from "@preact/signals";
import { prefs } from "./prefs";

export const status = signal(""); // role="status"
export const spoken = signal(""); // the polite region for an answer's text

export interface Toast {
  text: string;
  action?: { label: string; run: () => void };
}

export const toast = signal<Toast | null>(null);
let toastTimer = 0;

export function say(text: string): void {
  // The same text twice is a change only if something differs.
  status.value = status.value === text ? text + "\u00a0" : text;
}

export function showToast(t: Toast, ms = 5000): void {
  toast.value = t;
  clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => (toast.value = null), ms);
  say(t.text);
}

export function hideToast(): void {
  toast.value = null;
}

const EVERY = 2000; // ms between two announcements
let waiting = "";
let timer = 0;
let last = -EVERY;

function release(all: boolean): void {
  timer = 0;
  const end = all ? waiting.length : waiting.search(/[.!?:…\n](?=[^.!?:…\n]*$)/) + 1;
  if (end <= 0) return;
  spoken.value = waiting.slice(0, end).replace(/[`*_#>|]+/g, " ").replace(/\s+/g, " ").trim();
  waiting = waiting.slice(end);
  last = performance.now();
}

// Text of an answer as it comes: kept until a sentence is whole, and spoken at most every two seconds.
export function speak(text: string): void {
  if (!prefs.value.announce) return;
  waiting += text;
  if (!timer) timer = window.setTimeout(() => release(false), Math.max(100, last + EVERY - performance.now()));
}

export function speakRest(): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => release(true), Math.max(0, last + EVERY - performance.now()));
}
