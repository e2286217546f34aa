import { useEffect } from "preact/hooks";
import { percent } from "../lib/format";
import { current, shown } from "../state/chats";
import { activities } from "../state/generate";
import { histories } from "../state/numbers";
import { props, refreshMemory } from "../state/server";
import { T } from "../strings";
import { Curve } from "./Curve";

const LOOK = 2000; // ms between two looks at the memory while the panel is open

function useMemory(): void {
  useEffect(() => {
    const look = () => {
      if (document.hidden) return;
      void refreshMemory();
    };
    look();
    const timer = setInterval(look, LOOK);
    return () => clearInterval(timer);
  }, []);
}

function Memory() {
  const m = props.value?.memory;
  if (!m) return null;
  return (
    <section class="figure">
      <h2>{T.memory}</h2>
      <p class="value">{m.budget ? T.ofBudget(m.used, m.budget) : T.modelSize(m.used)}</p>
      {m.budget > 0 && <meter min={0} max={m.budget} value={Math.min(m.used, m.budget)} aria-label={T.ofBudget(m.used, m.budget)} />}
    </section>
  );
}

function Last() {
  const conv = shown.value;
  const id = conv?.path.value[conv.path.value.length - 1];
  const m = id ? conv!.cells.get(id)!.value : undefined;
  const t = m?.timings;
  if (!m || (!t && !m.usage)) return <p class="hint">{T.noNumbers}</p>;
  const rows: [string, string][] = [];
  const prompt = m.usage?.prompt_tokens ?? t?.prompt_n ?? 0;
  rows.push([T.promptTokens, T.promptValue(prompt, m.usage?.cached ?? 0)]);
  rows.push([T.answerTokens, T.tokens(m.usage?.completion_tokens ?? t?.predicted_n ?? 0)]);
  if (t?.prompt_ms) rows.push([T.readingRate, T.perSecond((1000 * t.prompt_n) / t.prompt_ms)]);
  if (t?.predicted_ms) rows.push([T.writingRate, T.perSecond((1000 * t.predicted_n) / t.predicted_ms)]);
  if (t && t.hits + t.misses > 0) rows.push([T.hitRate, percent(t.hits / (t.hits + t.misses))], [T.readRate, T.modelSize(t.bytes)]);
  return <dl class="rows">{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

export function Numbers() {
  useMemory();
  const h = histories.value;
  const a = current.value ? activities.value[current.value] : undefined;
  const last = (list: number[]) => list[list.length - 1] ?? 0;
  return (
    <>
      <Memory />
      {h.rate.length > 1 && <Curve name={T.speed} value={T.perSecond(a?.rate || last(h.rate))} points={h.rate} />}
      {h.hits.length > 1 && <Curve name={T.hitRate} value={percent(last(h.hits))} points={h.hits} top={1} />}
      {h.reads.length > 1 && <Curve name={T.readRate} value={T.reads(last(h.reads))} points={h.reads} />}
      <section>
        <h2>{T.lastAnswer}</h2>
        <Last />
      </section>
      {props.value?.build && <p class="hint">{T.build} {props.value.build}</p>}
    </>
  );
}
