import { useEffect, useRef, useState } from "preact/hooks";
import { chat, options, rename } from "../state/chats";
import { models, server } from "../state/server";
import { drawer, openDrawer, panelShown, togglePanel, wide } from "../state/view";
import { T } from "../strings";
import { ContextMeter, ModelList, stateText, ThemeSwitch, ThinkingSwitch } from "./controls";
import { Icon, IconButton } from "./Icon";

function Title() {
  const [open, setOpen] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const c = chat.value;
  useEffect(() => setOpen(false), [c?.id]);
  useEffect(() => field.current?.select(), [open]);
  if (!c) return <h1 class="title"><span class="cut">{T.untitled}</span></h1>;
  const save = () => {
    // Taking the field away makes it lose the focus, which saves again.
    if (field.current) void rename(c.id, field.current.value);
    setOpen(false);
  };
  return (
    <h1 class="title">
      {open ? (
        <input class="field" ref={field} value={c.title} maxLength={200} aria-label={T.titleLabel} dir="auto" onBlur={save}
          onKeyDown={(e) => {
            if (e.key === "Enter") save();
            if (e.key === "Escape") {
              e.preventDefault();
              setOpen(false);
            }
          }} />
      ) : (
        <button type="button" class="title-button" title={T.editTitle} onClick={() => setOpen(true)}>
          <span class="cut" dir="auto">{c.title}</span>
        </button>
      )}
    </h1>
  );
}

function ModelButton() {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (e: Event) => !box.current?.contains(e.target as Node) && setOpen(false);
    const escape = (e: KeyboardEvent) => {
      if (e.key !== "Escape") return;
      e.preventDefault();
      setOpen(false);
      button.current?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", escape, true);
    };
  }, [open]);
  const name = options.value.model ?? models.value[0]?.id ?? T.model;
  return (
    <div class="model" ref={box}>
      <button type="button" class="model-button" ref={button} aria-expanded={open} aria-label={T.modelMenu(name, stateText())}
        title={name} disabled={!models.value.length} onClick={() => setOpen(!open)}>
        <span class={`dot ${server.value}`} />
        <span class="model-name cut">{name}</span>
        {server.value !== "ok" && <span class="model-state">{" "}{stateText()}</span>}
        <Icon name="down" />
      </button>
      {open && <div class="popover"><ModelList /></div>}
    </div>
  );
}

export function Header() {
  const w = wide.value;
  return (
    <header class="header">
      {!w && <IconButton icon="menu" label={T.openMenu} expanded={drawer.value === "chats"} onClick={() => openDrawer("chats")} />}
      <Title />
      <ModelButton />
      {w && <ThinkingSwitch />}
      {w && <ContextMeter />}
      {w && <ThemeSwitch />}
      <IconButton icon="panel" label={T.openPanel} expanded={panelShown()} onClick={togglePanel} />
    </header>
  );
}
