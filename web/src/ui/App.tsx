import { useEffect, useRef, useState } from "preact/hooks";
import { T } from "../strings";
import { spoken, status, hideToast, toast } from "../state/say";
import { closeDrawer, drawer, panelShown, wide } from "../state/view";
import { Composer } from "./Composer";
import { Header } from "./Header";
import { Icon, IconButton } from "./Icon";
import { Messages } from "./Messages";
import { Notices } from "./Notices";
import { Panel } from "./Panel";
import { Sidebar } from "./Sidebar";
import { StatusLine } from "./StatusLine";
import { addFiles } from "./attachments";

// Screen readers hear these; the messages themselves are no live region.
function Spoken() {
  return (
    <>
      <div class="offscreen" role="status">{status.value}</div>
      <div class="offscreen" aria-live="polite" id="spoken">{spoken.value}</div>
    </>
  );
}

function Toast() {
  const t = toast.value;
  if (!t) return null;
  return (
    <div class="toast">
      <span dir="auto">{t.text}</span>
      {t.action && <button type="button" class="toast-action" onClick={t.action.run}>{t.action.label}</button>}
      <IconButton icon="close" label={T.dismiss} onClick={hideToast} />
    </div>
  );
}

// A drawer takes the focus when it opens, and keeps it until it closes.
function Drawer({ side, label, children }: { side: "left" | "right"; label: string; children: any }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    box.current?.querySelector<HTMLElement>("button, input")?.focus();
  }, []);
  const trap = (e: KeyboardEvent) => {
    if (e.key !== "Tab" || !box.current) return;
    const all = [...box.current.querySelectorAll<HTMLElement>("button, input, select, textarea, a[href]")]
      .filter((x) => x.offsetParent !== null && !x.hasAttribute("disabled"));
    const end = e.shiftKey ? all[0] : all[all.length - 1];
    if (document.activeElement !== end) return;
    e.preventDefault();
    (e.shiftKey ? all[all.length - 1] : all[0])?.focus();
  };
  return (
    <>
      <div class="veil" onClick={closeDrawer} />
      <div class={`drawer ${side}`} role="dialog" aria-modal="true" aria-label={label} ref={box} onKeyDown={trap}>{children}</div>
    </>
  );
}

function useDrop(): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    let depth = 0;
    const hasFiles = (e: DragEvent) => !!e.dataTransfer?.types.includes("Files");
    const enter = (e: DragEvent) => {
      if (!hasFiles(e)) return;
      depth++;
      setOver(true);
    };
    const leave = () => {
      depth = Math.max(0, depth - 1);
      if (!depth) setOver(false);
    };
    const hold = (e: DragEvent) => hasFiles(e) && e.preventDefault();
    const drop = (e: DragEvent) => {
      depth = 0;
      setOver(false);
      if (!hasFiles(e)) return;
      e.preventDefault();
      void addFiles([...e.dataTransfer!.files]);
    };
    addEventListener("dragenter", enter);
    addEventListener("dragleave", leave);
    addEventListener("dragover", hold);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragenter", enter);
      removeEventListener("dragleave", leave);
      removeEventListener("dragover", hold);
      removeEventListener("drop", drop);
    };
  }, []);
  return over;
}

export function App() {
  const over = useDrop();
  const w = wide.value;
  return (
    <div class={`app ${w && panelShown() ? "with-panel" : ""}`}>
      <a class="skip" href="#message" onClick={(e) => {
        e.preventDefault();
        document.getElementById("message")?.focus();
      }}>{T.skip}</a>
      {w && <nav class="sidebar" aria-label={T.conversations}><Sidebar /></nav>}
      <div class="center">
        <Header />
        <main class="main">
          <Messages />
          <div class="dock">
            <Notices />
            <StatusLine />
            <Composer />
          </div>
        </main>
      </div>
      {w && panelShown() && <aside class="panel" aria-label={T.openPanel}><Panel /></aside>}
      {!w && drawer.value === "chats" && <Drawer side="left" label={T.conversations}><Sidebar /></Drawer>}
      {!w && drawer.value === "panel" && <Drawer side="right" label={T.openPanel}><Panel /></Drawer>}
      {over && <div class="drop"><Icon name="file" /><span>{T.dropHere}</span></div>}
      <Toast />
      <Spoken />
    </div>
  );
}
