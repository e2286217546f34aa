import { useEffect, useState } from "preact/hooks";
import { percent } from "../lib/format";
import { current, shown } from "../state/chats";
import { activities, retryNow, type Activity } from "../state/generate";
import { T } from "../strings";

function useTick(on: boolean): void {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [on]);
}

function Reading({ a }: { a: Activity }) {
  const p = a.progress!;
  return (
    <>
      <progress max={p.total} value={p.done} aria-label={T.phaseRead(p.done, p.total)} />
      <span>{T.phaseRead(p.done, p.total)}</span>
      <span>{percent(p.done / p.total)}</span>
      {p.cached > 0 && <span>{T.phaseReadCached(p.cached)}</span>}
      {p.rate > 0 && <span>{T.perSecond(p.rate)}</span>}
      {p.eta > 0 && <span>{T.eta(p.eta)}</span>}
    </>
  );
}

function Retry({ a, chat }: { a: Activity; chat: string }) {
  useTick(true);
  const s = Math.max(0, Math.ceil((a.retryAt - Date.now()) / 1000));
  return (
    <>
      <span>{T.phaseRetry(a.phase === "loading" ? `${T.phaseLoading}.` : a.why, s)}</span>
      <button type="button" class="quiet" onClick={() => retryNow(chat)}>{T.retryNow}</button>
    </>
  );
}

function Live({ a }: { a: Activity }) {
  return (
    <>
      {a.phase === "think" && <span>{T.thinkingNow}</span>}
      {a.rate > 0 && <span>{T.perSecond(a.rate)}</span>}
      {a.hits >= 0 && <span>{T.hits(a.hits)}</span>}
      {a.reads >= 0 && <span>{T.reads(a.reads)}</span>}
    </>
  );
}

function Running({ a, chat }: { a: Activity; chat: string }) {
  switch (a.phase) {
    case "connect":
      return <span>{T.phaseConnect}</span>;
    case "queue":
      return <span>{T.phaseQueue(a.queue)}</span>;
    case "retry":
    case "loading":
      return <Retry a={a} chat={chat} />;
    case "read":
      return a.progress ? <Reading a={a} /> : null;
    default:
      return <Live a={a} />;
  }
}

// The figures of the last answer, when nothing runs.
function Rest() {
  const conv = shown.value;
  const id = conv?.path.value[conv.path.value.length - 1];
  const t = id ? conv!.cells.get(id)?.value.timings : undefined;
  if (!t || !t.predicted_ms) return null;
  const looked = t.hits + t.misses;
  return (
    <>
      <span>{T.tokens(t.predicted_n)}</span>
      <span>{T.perSecond((1000 * t.predicted_n) / t.predicted_ms)}</span>
      {looked > 0 && <span>{T.hits(t.hits / looked)}</span>}
    </>
  );
}

export function StatusLine() {
  const id = current.value;
  const a = id ? activities.value[id] : undefined;
  return <div class="status">{a ? <Running a={a} chat={id!} /> : <Rest />}</div>;
}
