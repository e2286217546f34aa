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
void start().then(() => render(<App />, document.getElementById("app")!));
