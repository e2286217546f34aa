import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { fence } from "../lib/exchange";
import { LONG_PASTE } from "../lib/files";
import { tokenCount } from "../lib/api";
import { current } from "../state/chats";
import { activities, busy, send, stop } from "../state/generate";
import { server } from "../state/server";
import { focusComposer, touch } from "../state/view";
import { T } from "../strings";
import { addFiles, addPaste, attached, removeFile } from "./attachments";
import { Icon, IconButton } from "./Icon";
import { editLast } from "./keys";

// A draft outlives a reload of the tab, and each chat has its own.
const draftKey = (): string => `swiftlet.draft.${current.peek() ?? ""}`;
function readDraft(): string {
  try {
    return sessionStorage.getItem(draftKey()) ?? "";
  } catch {
    return "";
  }
}
function keepDraft(text: string): void {
  try {
    if (text) sessionStorage.setItem(draftKey(), text);
    else sessionStorage.removeItem(draftKey());
  } catch {
    // Not kept then.
  }
}

// Tokens of what would be sent, counted by the server a moment after the last key.
function useTokens(text: string): number | null {
  const [n, setN] = useState<number | null>(null);
  const files = attached.value;
  const there = server.value === "ok";
  useEffect(() => {
    if (!text.trim() && !files.length) return setN(null);
    if (!there) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      const all = [...files.map((f) => fence(f.text, f.name)), text].filter(Boolean).join("\n\n");
      tokenCount(all, abort.signal).then(setN, () => {});
    }, 350);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, files, there]);
  return n;
}

// From 1 to 12 rows, by what the text needs.
function useRows(text: string) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const f = field.current!;
    f.rows = 1;
    const line = parseFloat(getComputedStyle(f).lineHeight);
    const pad = f.clientHeight - line;
    f.rows = Math.max(1, Math.min(12, Math.round((f.scrollHeight - pad) / line)));
  }, [text]);
  return field;
}

function Chips() {
  if (!attached.value.length) return null;
  return (
    <ul class="chips">
      {attached.value.map((f, i) => (
        <li key={i} class="chip">
          <Icon name="file" /><span class="cut" dir="auto">{f.name}</span><small>{T.fileInfo(f.size)}</small>
          <IconButton icon="close" label={T.removeFile(f.name)} onClick={() => removeFile(f)} />
        </li>
      ))}
    </ul>
  );
}

export function Composer() {
  const id = current.value;
  const [text, setText] = useState(readDraft);
  const field = useRows(text);
  const picker = useRef<HTMLInputElement>(null);
  const tokens = useTokens(text);
  const running = !!id && id in activities.value;
  const before = useRef(id);
  useEffect(() => {
    if (before.current !== id) setText(readDraft());
    before.current = id;
  }, [id]);
  useEffect(() => {
    if (!touch) focusComposer();
  }, []);
  const change = (s: string) => {
    setText(s);
    keepDraft(s);
  };
  const submit = () => {
    if ((!text.trim() && !attached.value.length) || busy(id ?? undefined)) return;
    const files = attached.value;
    change("");
    attached.value = [];
    void send(text, files);
    focusComposer();
  };
  const key = (e: KeyboardEvent) => {
    if (e.isComposing) return;
    if (e.key === "Enter" && !e.shiftKey && !e.altKey && (!touch || e.ctrlKey || e.metaKey)) {
      e.preventDefault();
      submit();
    } else if (e.key === "ArrowUp" && !text && editLast()) {
      e.preventDefault();
    }
  };
  const paste = (e: ClipboardEvent) => {
    const files = [...(e.clipboardData?.files ?? [])];
    const s = e.clipboardData?.getData("text/plain") ?? "";
    if (files.length) void addFiles(files);
    else if (s.length > LONG_PASTE) addPaste(s);
    else return;
    e.preventDefault();
  };
  return (
    <form class="composer" onSubmit={(e) => {
      e.preventDefault();
      submit();
    }}>
      <Chips />
      <div class="composer-row">
        <IconButton icon="clip" label={T.attach} onClick={() => picker.current?.click()} />
        <input ref={picker} type="file" multiple hidden id="attach" aria-label={T.attach} onChange={(e) => {
          const files = [...(e.currentTarget.files ?? [])];
          e.currentTarget.value = "";
          void addFiles(files);
        }} />
        <textarea id="message" ref={field} rows={1} dir="auto" aria-label={T.compose} placeholder={T.placeholder} value={text}
          enterkeyhint={touch ? "enter" : "send"} onInput={(e) => change(e.currentTarget.value)} onKeyDown={key} onPaste={paste} />
        {tokens !== null && <span class="tokens">{T.tokens(tokens)}</span>}
        {running ? (
          <button type="button" class="go stop" aria-label={T.stop} title={T.stop} onClick={() => {
            stop(id!);
            focusComposer();
          }}><Icon name="stop" /></button>
        ) : (
          <button type="submit" class="go" aria-label={T.send} title={T.send} disabled={!text.trim() && !attached.value.length}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
