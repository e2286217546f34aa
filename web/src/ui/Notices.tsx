// What stands above the composer: a key that is asked for, a server that is away, a context that fills.

import { useRef, useState } from "preact/hooks";
import { activities, contextLimit, contextUsed, retryKeyless } from "../state/generate";
import { current, shown } from "../state/chats";
import { keyNeeded, refresh, server, useKey } from "../state/server";
import { focusComposer } from "../state/view";
import { T } from "../strings";
import { Icon } from "./Icon";
import { newChat } from "./keys";

function KeyPrompt() {
  const field = useRef<HTMLInputElement>(null);
  const [wrong, setWrong] = useState(false);
  const [asking, setAsking] = useState(false);
  const submit = async (e: Event) => {
    e.preventDefault();
    const key = field.current!.value.trim();
    if (!key) return;
    setAsking(true);
    setWrong(false);
    const ok = await useKey(key);
    setAsking(false);
    setWrong(!ok);
    if (!ok) return;
    focusComposer();
    void retryKeyless();
  };
  return (
    <form class="notice" onSubmit={submit}>
      <Icon name="key" />
      <div class="notice-body">
        <b>{T.keyTitle}</b>
        <p id="key-hint">{wrong ? T.keyWrong : T.keyText}</p>
        <div class="row">
          <input class="field" id="key" ref={field} type="password" autoComplete="off" aria-label={T.keyLabel} aria-describedby="key-hint"
            aria-invalid={wrong} placeholder={T.keyLabel} />
          <button type="submit" class="button primary" disabled={asking}>{T.keySave}</button>
        </div>
      </div>
    </form>
  );
}

function Down() {
  return (
    <div class="notice">
      <Icon name="warn" />
      <div class="notice-body"><b>{T.downTitle}</b><p>{T.downText}</p></div>
      <button type="button" class="button" onClick={() => void refresh()}>{T.retryNow}</button>
    </div>
  );
}

function ContextNote() {
  const limit = contextLimit();
  void activities.value;
  void shown.value?.path.value;
  const used = contextUsed(shown.value);
  if (!limit || used < 0.8 * limit) return null;
  return (
    <div class="notice">
      <Icon name="info" />
      <div class="notice-body"><p>{used >= limit ? T.contextFull : T.contextHigh}</p></div>
      <button type="button" class="button" onClick={() => void newChat()}>{T.newChat}</button>
    </div>
  );
}

export function Notices() {
  const waiting = !!current.value && current.value in activities.value;
  if (keyNeeded.value) return <KeyPrompt />;
  if (server.value === "down" && !waiting) return <Down />;
  if (server.value === "loading" && !waiting) return <div class="notice"><Icon name="info" /><div class="notice-body"><p>{T.phaseLoading}</p></div></div>;
  return <ContextNote />;
}
