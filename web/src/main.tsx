// Starts the page.

import { render } from "preact";
import "./style/index.css";
import { start } from "./state/chats";
import { keepOnLeave } from "./state/generate";
import { followTheme } from "./state/prefs";
import { watchServer } from "./state/server";
import { watchWidth } from "./state/view";
import { App } from "./ui/App";
import { listenKeys } from "./ui/keys";

followTheme();
watchWidth();
watchServer();
keepOnLeave();
listenKeys();

// A new chat is there at once, while the list is still being read; one that has an address comes with its messages.
const draw = () => render(<App />, document.getElementById("app")!);
const started = start();
if (location.hash) void started.then(draw);
else draw();
