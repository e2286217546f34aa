import { useLayoutEffect, useState } from "preact/hooks";
import { current, options, resetOptions, setOptions } from "../state/chats";
import { prefs, setPref, type Theme } from "../state/prefs";
import { say } from "../state/say";
import { props } from "../state/server";
import { wide } from "../state/view";
import { T } from "../strings";
import { ContextMeter, ThinkingSwitch } from "./controls";

type Name = "temperature" | "top_p" | "top_k" | "min_p" | "seed" | "max_tokens";
const FIELDS: [Name, number, number, boolean][] = [
  // name, least, most, whole
  ["temperature", 0, 5, false], ["top_p", 0, 1, false], ["top_k", 0, 1000000, true], ["min_p", 0, 1, false],
  ["seed", 0, 9007199254740991, true], ["max_tokens", 1, 10000000, true],
];

function defaultText(name: Name): string {
  const d = props.value?.sampling[name];
  if (name === "seed") return T.optionAny;
  if (name === "max_tokens") return d && d > 0 ? String(d) : T.optionNone;
  return d === undefined ? "" : String(Number(d.toFixed(4)));
}

function NumberField({ name, low, high, whole }: { name: Name; low: number; high: number; whole: boolean }) {
  const value = options.value[name];
  const [text, setText] = useState(value === undefined ? "" : String(value));
  useLayoutEffect(() => setText(value === undefined ? "" : String(value)), [value, current.value]);
  const read = (s: string): number | undefined | null => {
    if (!s.trim()) return undefined;
    const n = Number(s.replace(",", "."));
    return Number.isFinite(n) && n >= low && n <= high && (!whole || Number.isInteger(n)) ? n : null;
  };
  const wrong = read(text) === null;
  return (
    <div class="number">
      <label for={`opt-${name}`}>{T.options[name]}</label>
      <input class="field" id={`opt-${name}`} inputMode="decimal" autoComplete="off" placeholder={defaultText(name)} value={text} aria-invalid={wrong}
        aria-describedby={`hint-${name}`} onInput={(e) => setText(e.currentTarget.value)}
        onChange={() => {
          const n = read(text);
          if (n !== null) void setOptions({ [name]: n });
        }} />
      <small id={`hint-${name}`} class={wrong ? "wrong" : ""}>{wrong ? T.optionRange(low, high) : T.optionHints[name]}</small>
    </div>
  );
}

function SystemPrompt() {
  const value = options.value.system ?? "";
  const [text, setText] = useState(value);
  useLayoutEffect(() => setText(value), [value, current.value]);
  return (
    <div class="number wide">
      <label for="opt-system">{T.system}</label>
      <textarea class="field" id="opt-system" rows={4} dir="auto" value={text} placeholder={T.systemHint}
        onInput={(e) => setText(e.currentTarget.value)} onChange={() => void setOptions({ system: text || undefined })} />
    </div>
  );
}

function Switch({ name, label }: { name: "openThinking" | "announce"; label: string }) {
  return (
    <label class="switch">
      <input type="checkbox" role="switch" checked={prefs.value[name]} onChange={(e) => setPref(name, e.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

function ThemeChoice() {
  return (
    <label class="select">
      <span>{T.theme}</span>
      <select value={prefs.value.theme} onChange={(e) => setPref("theme", e.currentTarget.value as Theme)}>
        {(Object.keys(T.themes) as Theme[]).map((t) => <option key={t} value={t}>{T.themes[t]}</option>)}
      </select>
    </label>
  );
}

export function Settings() {
  return (
    <>
      <section>
        <h2>{T.thisChat}</h2>
        {!wide.value && <ContextMeter />}
        {!wide.value && <ThinkingSwitch />}
        <SystemPrompt />
        <div class="grid">{FIELDS.map(([name, low, high, whole]) => <NumberField key={name} name={name} low={low} high={high} whole={whole} />)}</div>
        <button type="button" class="button" onClick={() => {
          void resetOptions();
          say(T.optionsReset);
        }}>{T.resetOptions}</button>
      </section>
      <section>
        <h2>{T.thisPage}</h2>
        <ThemeChoice />
        <Switch name="openThinking" label={T.prefOpenThinking} />
        <Switch name="announce" label={T.prefAnnounce} />
        <p class="hint">{T.staysWhy}</p>
      </section>
    </>
  );
}
