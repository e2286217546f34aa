import { useEffect, useRef, useState } from "preact/hooks";
import { useComputed, type Signal } from "@preact/signals";
import type { Message as M } from "../types";
import { clock, dateTime } from "../lib/format";
import { copyText } from "../lib/files";
import { TAB } from "../lib/id";
import { options, selectVersion, type Conversation } from "../state/chats";
import { answerNow, busy, contentOf, editAndSend, goOn, regenerate, thinking } from "../state/generate";
import { prefs } from "../state/prefs";
import { showToast } from "../state/say";
import { canAnswerNow, models } from "../state/server";
import { editing, focusComposer, touch } from "../state/view";
import { T } from "../strings";
import { Answer } from "./Answer";
import { Icon, IconButton, Mark } from "./Icon";
import { newChat } from "./keys";

function ThinkTime({ m, running }: { m: M; running: boolean }) {
  if (running) return <>{T.thinkingNow}</>;
  return <>{m.thinkMs ? T.thoughtFor(m.thinkMs, m.thinkTokens ?? 0) : T.thinking}</>;
}

function Thinking({ m }: { m: M }) {
  const running = m.status === "streaming" && thinking.value.includes(m.id);
  const [choice, setChoice] = useState<boolean | null>(null); // the reader's, once made
  const open = choice ?? (running && prefs.value.openThinking);
  return (
    <div class={`thinking ${open ? "opened" : ""}`}>
      <div class="thinking-head">
        <button type="button" class="fold" aria-expanded={open} onClick={() => setChoice(!open)}>
          <Icon name="bulb" />
          <span class={running ? "live" : ""}><ThinkTime m={m} running={running} /></span>
          <Icon name="down" />
        </button>
        {running && canAnswerNow.value && (
          <button type="button" class="quiet" onClick={() => void answerNow(m.chat)}>{T.answerNow}</button>
        )}
      </div>
      {open && <Answer text={m.reasoning ?? ""} done={!running} small />}
    </div>
  );
}

function Files({ m }: { m: M }) {
  return (
    <ul class="chips">
      {m.files!.map((f, i) => (
        <li key={i} class="chip"><Icon name="file" /><span class="cut" dir="auto">{f.name}</span><small>{T.fileInfo(f.size)}</small></li>
      ))}
    </ul>
  );
}

function Calls({ m }: { m: M }) {
  return (
    <>
      {m.calls!.map((c, i) => (
        <div key={i} class="call">
          <p class="call-head"><Icon name="tool" />{T.toolCall(c.name)}</p>
          <pre tabIndex={0} role="region" aria-label={c.name}>{c.args}</pre>
          <p class="hint">{T.toolNote}</p>
        </div>
      ))}
    </>
  );
}

function EditField({ conv, m }: { conv: Conversation; m: M }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(m.text);
  useEffect(() => {
    const f = field.current!;
    f.focus();
    f.setSelectionRange(f.value.length, f.value.length);
  }, []);
  const close = () => {
    editing.value = null;
    focusComposer();
  };
  const send = () => {
    if (!text.trim() && !m.files?.length) return;
    close();
    void editAndSend(conv, m, text);
  };
  return (
    <div class="editing">
      <textarea ref={field} class="field" dir="auto" aria-label={T.editLabel} value={text}
        rows={Math.min(12, Math.max(2, text.split("\n").length))} onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !touch) {
            e.preventDefault();
            send();
          }
        }} />
      <div class="row end">
        <button type="button" class="button" onClick={close}>{T.cancel}</button>
        <button type="button" class="button primary" onClick={send}>{T.editSend}</button>
      </div>
    </div>
  );
}

function Versions({ conv, m }: { conv: Conversation; m: M }) {
  // As text, so that a change elsewhere in the tree is none here.
  const ids = useComputed(() => (conv.versions.value.get(m.parent) ?? []).filter((x) => x.role === m.role).map((x) => x.id).join(" "));
  const all = ids.value.split(" ");
  if (all.length < 2) return null;
  const at = all.indexOf(m.id);
  const go = (i: number) => void selectVersion(conv, all[i]);
  return (
    <span class="versions" role="group" aria-label={T.versionLabel(at + 1, all.length)}>
      <IconButton icon="left" label={T.versionBack} disabled={at <= 0} onClick={() => go(at - 1)} />
      <span class="version">{T.version(at + 1, all.length)}</span>
      <IconButton icon="right" label={T.versionNext} disabled={at >= all.length - 1} onClick={() => go(at + 1)} />
    </span>
  );
}

function idleOnly(conv: Conversation, act: () => void): void {
  if (busy(conv.id)) showToast({ text: T.oneAtATime }, 3000);
  else act();
}

const copy = (m: M) => void copyText(m.role === "user" ? contentOf(m) : m.text)
  .then((ok) => showToast({ text: ok ? T.copied : T.copyFailed }, 2500));

// Whether an answer may be gone on with: it was stopped, cut off, or reached the limit.
const unfinished = (m: M): boolean => m.status === "stopped" || m.status === "interrupted" || m.finish === "length" || (m.status === "error" && !!m.text);

// While an answer is written, what would start another says so; the list's class shows it, so that a long list need not
// be drawn again for it.
function Actions({ conv, m, last }: { conv: Conversation; m: M; last: boolean }) {
  if (m.status === "streaming") return null;
  return (
    <div class="actions">
      <Versions conv={conv} m={m} />
      {(m.text || m.files) && <IconButton icon="copy" label={T.copy} onClick={() => copy(m)} />}
      {m.role === "user" && <IconButton icon="edit" label={T.edit} class="starts" onClick={() => idleOnly(conv, () => (editing.value = m.id))} />}
      {m.role === "assistant" && <IconButton icon="again" label={T.regenerate} class="starts" onClick={() => idleOnly(conv, () => void regenerate(conv, m))} />}
      {m.role === "assistant" && last && !unfinished(m) && m.text &&
        <IconButton icon="forward" label={T.goOn} class="starts" onClick={() => idleOnly(conv, () => void goOn(conv, m))} />}
      <time class="time" dateTime={new Date(m.created).toISOString()} title={dateTime(m.created)}>{clock(m.created)}</time>
    </div>
  );
}

const TITLES = { down: T.downTitle, key: T.keyTitle, full: T.fullTitle, busy: T.busyText, loading: T.phaseLoading, refused: T.refusedTitle, server: T.serverTitle };

function Fault({ conv, m }: { conv: Conversation; m: M }) {
  const f = m.fault!;
  if (f.kind === "key") return null; // the notice beside the composer asks for it
  return (
    <div class="note fault">
      <Icon name="warn" />
      <div>
        <b>{TITLES[f.kind]}</b>
        <p>{f.kind === "full" ? T.contextFull : f.text}</p>
        {f.kind === "full" && <p class="hint">{f.text}</p>}
        <div class="row">
          {f.kind === "full" && <button type="button" class="button primary" onClick={() => void newChat()}>{T.newChat}</button>}
          {f.kind !== "full" && !m.text && <button type="button" class="button" onClick={() => void goOn(conv, m)}>{T.tryAgain}</button>}
        </div>
      </div>
    </div>
  );
}

function Note({ conv, m, last }: { conv: Conversation; m: M; last: boolean }) {
  if (m.status === "streaming") return m.owner !== TAB ? <p class="note"><Icon name="info" />{T.elsewhere}</p> : null;
  if (m.fault && m.status === "error") {
    return (
      <>
        <Fault conv={conv} m={m} />
        {m.text && last && <Continue conv={conv} m={m} />}
      </>
    );
  }
  const text = m.status === "stopped" ? T.stoppedNote : m.status === "interrupted" ? T.interruptedNote
    : m.finish === "length" ? T.lengthNote : !m.text && !m.calls?.length ? T.noAnswer : "";
  if (!text) return null;
  return <div class="note"><Icon name="info" /><span>{text}</span>{last && unfinished(m) && <Continue conv={conv} m={m} />}</div>;
}

function Continue({ conv, m }: { conv: Conversation; m: M }) {
  return <button type="button" class="button starts" onClick={() => idleOnly(conv, () => void goOn(conv, m))}>{T.goOn}</button>;
}

export interface MessageProps {
  conv: Conversation;
  cell: Signal<M>;
  n: number;
  last: boolean;
}

function Question({ conv, m, n, last }: { conv: Conversation; m: M; n: number; last: boolean }) {
  const edited = useComputed(() => editing.value === m.id).value;
  return (
    <article class="message user" aria-label={T.questionName(n)}>
      <h2 class="role">{T.you}<span class="offscreen">, {T.questionName(n)}</span></h2>
      {edited ? <EditField conv={conv} m={m} /> : (
        <>
          <div class="bubble">
            {m.files?.length ? <Files m={m} /> : null}
            {m.text && <div class="plain" dir="auto">{m.text}</div>}
          </div>
          <Actions conv={conv} m={m} last={last} />
        </>
      )}
    </article>
  );
}

export function Message({ conv, cell, n, last }: MessageProps) {
  const m = cell.value;
  if (m.role === "user") return <Question conv={conv} m={m} n={n} last={last} />;
  const streaming = m.status === "streaming";
  return (
    <article class={`message assistant ${streaming ? "streaming" : ""}`} aria-label={T.answerName(n)} aria-busy={streaming}>
      <h2 class="role">
        <Mark /><span class="cut">{m.model || options.value.model || models.value[0]?.id || T.model}</span>
        <span class="offscreen">, {T.answerName(n)}</span>
      </h2>
      {m.reasoning && <Thinking m={m} />}
      {(m.text || !streaming) && <Answer text={m.text} done={!streaming} />}
      {streaming && !m.text && !m.reasoning && m.owner === TAB && <span class="wait" aria-hidden="true"><i /><i /><i /></span>}
      {m.calls?.length ? <Calls m={m} /> : null}
      <Note conv={conv} m={m} last={last} />
      <Actions conv={conv} m={m} last={last} />
    </article>
  );
}
