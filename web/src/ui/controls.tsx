// Controls that the header has on wide pages and the panel on narrow ones.

import { bytes, count } from "../lib/format";
import { models, props, server } from "../state/server";
import { prefs, setPref, type Theme } from "../state/prefs";
import { options, setOptions, shown } from "../state/chats";
import { activities, contextLimit, contextUsed } from "../state/generate";
import type { Thinking } from "../types";
import { T } from "../strings";
import { IconButton } from "./Icon";

const STATES = { start: T.stateStart, ok: T.stateOk, loading: T.stateLoading, down: T.stateDown, key: T.stateKey };
export const stateText = (): string => STATES[server.value];

// The levels that the model's template knows; none when nothing can be chosen.
function levels(): Thinking[] {
  const can = props.value?.thinking;
  if (!can) return [];
  const list: Thinking[] = [];
  if (can.switch) list.push("off", "on");
  if (can.effort) list.push("low", "medium", "high");
  return list.length ? ["auto", ...list] : [];
}

export function ThinkingSwitch() {
  const list = levels();
  if (!list.length) return null;
  const now = options.value.thinking ?? "auto";
  return (
    <label class="select">
      <span>{T.thinking}</span>
      <select value={now} onChange={(e) => void setOptions({ thinking: e.currentTarget.value as Thinking })}>
        {(list.includes(now) ? list : [...list, now]).map((l) => <option key={l} value={l}>{T.thinkingLevels[l]}</option>)}
      </select>
    </label>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function ThemeSwitch() {
  const { theme } = prefs.value;
  return (
    <IconButton icon={theme === "light" ? "sun" : theme === "dark" ? "moon" : "system"} class="theme"
      label={T.themeNow(T.themes[theme])} onClick={() => setPref("theme", NEXT[theme])} />
  );
}

export function ContextMeter() {
  const limit = contextLimit();
  const conv = shown.value;
  if (!limit) return null;
  void activities.value;
  void conv?.path.value.map((id) => conv.cells.get(id)?.value.usage);
  const used = contextUsed(conv);
  return (
    <div class={`meter ${used >= 0.8 * limit ? "high" : ""}`} title={T.contextOf(used, limit)}>
      <span class="meter-label">{T.contextLabel}</span>
      <meter min={0} max={limit} high={0.8 * limit} value={Math.min(used, limit)} aria-label={T.contextOf(used, limit)} />
      <span class="meter-value">{count(used)} / {short(limit)}</span>
    </div>
  );
}

const short = (n: number): string => (n >= 10000 ? `${Math.round(n / 1000)}k` : count(n));

export function ModelList() {
  const list = models.value;
  const now = options.value.model ?? list[0]?.id;
  const m = props.value?.memory;
  return (
    <div class="models">
      <fieldset>
        <legend>{T.models}</legend>
        {list.map((x) => (
          <label key={x.id} class="model-option">
            <input type="radio" name="model" checked={x.id === now} onChange={() => void setOptions({ model: list.length > 1 ? x.id : undefined })} />
            <span>
              <b>{x.id}</b>
              <small>{[x.size ? bytes(x.size) : "", x.context ? T.modelContext(x.context) : "", stateText()].filter(Boolean).join(" · ")}</small>
            </span>
          </label>
        ))}
      </fieldset>
      {m && m.budget > 0 && <p class="hint">{T.memoryPlan(m.used, m.budget)}</p>}
    </div>
  );
}
