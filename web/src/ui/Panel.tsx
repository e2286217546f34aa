import { closeDrawer, panelTab, wide } from "../state/view";
import { T } from "../strings";
import { IconButton } from "./Icon";
import { Numbers } from "./Numbers";
import { Settings } from "./Settings";

const TABS = [["settings", T.settings], ["numbers", T.numbers], ["keys", T.shortcuts]] as const;

const COMMAND = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";

function Keys() {
  return (
    <table class="keys">
      <tbody>
        {T.keys.map(([key, what]) => (
          <tr key={key}><th scope="row">{key.split(" ").map((k) => <kbd key={k}>{k === "Ctrl" ? COMMAND : k}</kbd>)}</th><td>{what}</td></tr>
        ))}
      </tbody>
    </table>
  );
}

function move(e: KeyboardEvent): void {
  const step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
  if (!step) return;
  e.preventDefault();
  const at = TABS.findIndex(([id]) => id === panelTab.value);
  panelTab.value = TABS[(at + step + TABS.length) % TABS.length][0];
  document.getElementById(`tab-${panelTab.value}`)?.focus();
}

export function Panel() {
  const tab = panelTab.value;
  return (
    <>
      <div class="panel-head">
        <div class="tabs" role="tablist" aria-label={T.openPanel} onKeyDown={move}>
          {TABS.map(([id, name]) => (
            <button key={id} type="button" role="tab" id={`tab-${id}`} aria-selected={tab === id} aria-controls="panel-body"
              tabIndex={tab === id ? 0 : -1} onClick={() => (panelTab.value = id)}>{name}</button>
          ))}
        </div>
        {!wide.value && <IconButton icon="close" label={T.close} onClick={closeDrawer} />}
      </div>
      <div class="panel-body" id="panel-body" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {tab === "settings" ? <Settings /> : tab === "numbers" ? <Numbers /> : <Keys />}
      </div>
    </>
  );
}
