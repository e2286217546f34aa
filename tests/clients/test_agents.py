#!/usr/bin/env python3
"""Coding agents from npm, against swiftlet serve on a scripted engine: the model calls a tool, the agent runs it and sends
the result, the model ends. Needs npm with Node 20; without it these tests are skipped.

usage: test_agents.py SWIFTLET_SCRIPTED FOLDER     FOLDER: where the agents are installed (once for each lock file)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "server"))
from harness import Server, main  # noqa: E402

FOLDER = os.path.abspath(sys.argv.pop(2))
CONTEXT = "1000000"  # a token of the script is a byte


def install():
    """Why the agents are not there, or None."""
    if not shutil.which("npm") or int(subprocess.check_output(["node", "-p", "parseInt(process.versions.node)"])) < 20:
        return "no npm with Node 20 or newer"
    lock, mark = os.path.join(HERE, "agents", "package-lock.json"), os.path.join(FOLDER, "installed")
    if not os.path.exists(mark) or open(mark).read() != open(lock).read():
        os.makedirs(FOLDER, exist_ok=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(os.path.join(HERE, "agents", name), FOLDER)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--prefer-offline", "--loglevel=error"], cwd=FOLDER, check=True)
        shutil.copy(lock, mark)
    return None


MISSING = install()


@unittest.skipIf(MISSING, MISSING)
class Agents(unittest.TestCase):
    def setUp(self):
        self.home = self.enterContext(tempfile.TemporaryDirectory(prefix="swiftlet-agent-home-"))
        self.work = self.enterContext(tempfile.TemporaryDirectory(prefix="swiftlet-agent-"))

    def serve(self, name, arguments):
        call = json.dumps({"name": name, "arguments": arguments})
        script = "Writing.<tool_call>%s</tool_call>\n---\nAll done." % call
        server = Server("--ctx", CONTEXT, SCRIPT_TEXT=script, SCRIPT_WORDS=1)
        self.addCleanup(server.stop)
        return server

    def run_agent(self, server, command, **env):
        if not os.path.isabs(command[0]):
            command[0] = os.path.join(FOLDER, "node_modules", ".bin", command[0])
        env = {**os.environ, "HOME": self.home, "PWD": self.work, "NO_COLOR": "1", **env}
        got = subprocess.run(command, cwd=self.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr + server.stderr())
        self.assertIn("All done.", got.stdout)
        with open(os.path.join(self.work, "hello.txt")) as f:
            self.assertEqual(f.read().strip(), "hi there")
        result = json.loads(server.asked()["messages"])[-1]
        self.assertEqual(result["role"], "tool", "the last request did not end with the tool's result")

    def test_pi_over_chat_completions(self):
        server = self.serve("write", {"path": "hello.txt", "content": "hi there"})
        folder = os.path.join(self.home, ".pi", "agent")
        os.makedirs(folder)
        provider = {"baseUrl": server.url + "/v1", "apiKey": "none", "api": "openai-completions", "models": [{"id": "m"}]}
        with open(os.path.join(folder, "models.json"), "w") as f:
            json.dump({"providers": {"local": provider}}, f)
        self.run_agent(server, ["pi", "--provider", "local", "--model", "m", "-p", "write hello.txt"], PI_OFFLINE="1")

    def test_codex_over_responses(self):
        server = self.serve("exec_command", {"cmd": "echo hi there > hello.txt"})
        with open(os.path.join(self.home, "config.toml"), "w") as f:
            f.write('model = "m"\nmodel_provider = "local"\n[model_providers.local]\nname = "local"\nbase_url = "%s/v1"\n'
                    'wire_api = "responses"\nstream_idle_timeout_ms = 4000\n' % server.url)
        self.run_agent(server, ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                                "write hello.txt"], CODEX_HOME=self.home)

    def test_opencode_over_chat_completions(self):
        """With its title request beside the main one; nothing is fetched."""
        program = os.path.join(FOLDER, "node_modules", "opencode-linux-x64-baseline", "bin", "opencode")
        if not os.path.exists(program):
            self.skipTest("OpenCode is there for Linux on x86-64 alone")
        server = self.serve("write", {"filePath": "hello.txt", "content": "hi there"})
        places = {"XDG_%s_HOME" % name: os.path.join(self.home, name.lower()) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
        folder = os.path.join(places["XDG_CONFIG_HOME"], "opencode")
        os.makedirs(folder)
        local = {"npm": "@ai-sdk/openai-compatible", "name": "local", "options": {"baseURL": server.url + "/v1", "apiKey": "none"},
                 "models": {"m": {"name": "m", "tool_call": True, "limit": {"context": int(CONTEXT), "output": 4096}}}}
        with open(os.path.join(folder, "opencode.json"), "w") as f:
            json.dump({"model": "local/m", "small_model": "local/m", "autoupdate": False, "share": "disabled", "permission": {"edit": "allow"},
                       "provider": {"local": local}}, f)
        off = {"OPENCODE_DISABLE_" + name: "1" for name in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "CLAUDE_CODE")}
        self.run_agent(server, [program, "run", "-m", "local/m", "write hello.txt"], **places, **off)


if __name__ == "__main__":
    main()
