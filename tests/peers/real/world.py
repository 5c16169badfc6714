"""A headend daemon in a folder of its own, and two clients that read JSON as it is: of a program's pipes, and of HTTP.

Numbers are kept as they were written, so that 1.0 and 1 differ and no digit is lost.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
PEERS = pathlib.Path(os.environ.get("HEADEND_TEST_PEERS", ROOT / "target/peers")).resolve()
LEGACY, MODERN = "2025-11-25", "2026-07-28"
# No roots: headend shows servers none unless its configuration says so.
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
PATIENCE = 180


def exact(text):
    """JSON whose numbers are their own texts."""
    return json.loads(text, parse_float=lambda n: "number " + n, parse_int=lambda n: "number " + n)


def dressed(params):
    """Parameters with the members that every modern request has."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "real", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
    }
    return {**params, "_meta": meta}


class Failed(Exception):
    """A client that got no answer."""


class Client:
    """What both have in common: requests, and lists page by page."""

    def __init__(self, modern):
        self.modern, self.last = modern, 0

    def ask(self, method, params):
        """One request; `{"result": ..}` or `{"error": ..}`."""
        self.last += 1
        params = dressed(params) if self.modern else params
        answer = self.exchange({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}, self.last)
        return {key: answer[key] for key in ("result", "error") if key in answer}

    def initialize(self):
        about = {"name": "real", "version": "1"}
        answer = self.ask("initialize", {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": about})
        if "result" not in answer:
            raise Failed(f"initialize: {answer}")
        self.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def list(self, method, member):
        """All items, and the error that a page was, if one was."""
        items, cursor, pages = [], None, 0
        while pages == 0 or (cursor is not None and pages < 1000):
            answer = self.ask(method, {} if cursor is None else {"cursor": cursor})
            if "error" in answer:
                return items, answer["error"]
            items += answer["result"].get(member, [])
            cursor, pages = answer["result"].get("nextCursor"), pages + 1
        return items, None


class Pipe(Client):
    """A client of a program that it starts itself."""

    def __init__(self, command, environment, folder, modern=False):
        super().__init__(modern)
        self.answers, self.lock = {}, threading.Condition()
        self.process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )
        threading.Thread(target=self.read, daemon=True).start()
        if not modern:
            self.initialize()

    def read(self):
        for line in self.process.stdout:
            try:
                message = exact(line)
            except ValueError:
                continue
            # A batch of 2025-03-26 is not expected; other texts are no messages.
            if not isinstance(message, dict):
                continue
            if "method" in message and "id" in message:
                answer = {"result": {}} if message["method"] == "ping" else {"error": {"code": -32601, "message": "no"}}
                number = message["id"]
                number = int(number[7:]) if isinstance(number, str) and number.startswith("number ") else number
                self.write({"jsonrpc": "2.0", "id": number, **answer})
            elif "id" in message:
                with self.lock:
                    self.answers[message["id"]] = message
                    self.lock.notify_all()
        with self.lock:
            self.answers[None] = {}
            self.lock.notify_all()

    def write(self, message):
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(f"the server is gone: {error}") from error

    notify = write

    def exchange(self, message, number):
        self.write(message)
        key = f"number {number}"
        with self.lock:
            if not self.lock.wait_for(lambda: key in self.answers or None in self.answers, PATIENCE):
                raise Failed(f"no answer to {message['method']} within {PATIENCE} s")
            if key not in self.answers:
                raise Failed(f"the server ended during {message['method']}")
            return self.answers.pop(key)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Http(Client):
    """A client of the daemon over HTTP."""

    def __init__(self, port, token, modern=False):
        super().__init__(modern)
        self.port, self.token, self.session = port, token, None
        if not modern:
            self.initialize()

    def post(self, message):
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
        }
        if self.modern:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
            named = message["params"].get("name", message["params"].get("uri"))
            # A value that no header field may hold goes as base64.
            if named is not None and not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", named):
                named = f"=?base64?{base64.b64encode(named.encode()).decode()}?="
            headers |= {} if named is None else {"Mcp-Name": named}
        elif self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": LEGACY}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", "/mcp", json.dumps(message), headers)
        return connection, connection.getresponse()

    def notify(self, message):
        connection, response = self.post(message)
        response.read()
        connection.close()

    def exchange(self, message, number):
        connection, response = self.post(message)
        with contextlib.closing(connection):
            self.session = response.headers.get("Mcp-Session-Id", self.session)
            if response.headers.get("Content-Type", "").startswith("text/event-stream"):
                return self.stream(response, f"number {number}", message["method"])
            text = response.read()
            try:
                return exact(text)
            except ValueError as error:
                raise Failed(f"{message['method']}: HTTP {response.status} {text[:200]!r}") from error

    def stream(self, response, key, method):
        data = []
        for line in response:
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                message, data = exact(b"\n".join(data) or b"null"), []
                if isinstance(message, dict) and message.get("id") == key and "method" not in message:
                    return message
        raise Failed(f"{method}: the stream ended without an answer")


class Daemon:
    """The real binary with a folder of its own."""

    def __init__(self, headend, upstreams, server="", environment=None):
        self.headend = str(headend)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headend-real-"))
        for name in ("home", "config", "state", "run", "work"):
            (self.folder / name).mkdir(mode=0o700)
        xdg = {"HOME": "home", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
        self.environment = {name: str(self.folder / folder) for name, folder in xdg.items()}
        self.environment |= {"LANG": "C.UTF-8", "PATH": os.environ["PATH"], **(environment or {})}
        self.config = self.folder / "headend.toml"
        self.upstreams, self.server = upstreams, server
        self.port, self.process = 0, None
        self.start()

    def write(self):
        text = f'[server]\nlisten = ["127.0.0.1:{self.port}"]\n{self.server}\n[metrics]\nlisten = ""\n'
        text += '[console]\nlisten = ""\n[policy]\ndefault = "allow"\n' + self.upstreams
        self.config.touch(0o600)
        self.config.write_text(text)

    def start(self):
        """Starts it, from the second time on at the port of the first."""
        self.write()
        self.process = subprocess.Popen(
            [self.headend, "serve", "--config", self.config], env=self.environment, cwd=self.folder / "work",
            stdout=subprocess.PIPE, stderr=open(self.folder / "log", "ab"), start_new_session=True,
        )
        lines = queue.Queue()

        def read():
            for line in self.process.stdout:
                lines.put(line.decode())
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        while line := lines.get(timeout=PATIENCE):
            if found := re.match(r"listening http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise Failed(f"the daemon did not start: {(self.folder / 'log').read_text()[-2000:]}")
        self.token = (self.folder / "state/headend/token").read_text().strip()

    def stop(self):
        """SIGTERM, which drains; how long it took."""
        begun = time.monotonic()
        self.process.terminate()
        self.process.wait(PATIENCE)
        return time.monotonic() - begun

    def run(self, *words):
        """`headend WORDS`; its exit code and standard output."""
        command = [self.headend, words[0], "--config", self.config, *words[1:]]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout + (done.stderr if done.returncode else "")

    def status(self):
        """The upstreams by name."""
        code, text = self.run("status", "--json")
        return {row["name"]: row for row in json.loads(text)["upstreams"]} if code == 0 else {}

    def wait(self, names, seconds=PATIENCE, beyond=None):
        """Waits until these upstreams are ready, in a later life than that of `beyond`; those that are not, with their last error."""
        until = time.monotonic() + seconds
        while True:
            status = self.status()
            rows = {name: status.get(name, {}) for name in names}
            is_late = lambda row: row.get("state") != "ready" or row.get("incarnation") == beyond
            late = {name: row for name, row in rows.items() if is_late(row)}
            if not late or time.monotonic() > until:
                return {n: f"{row.get('state')}: {row.get('last-error', '')}" for n, row in late.items()}
            time.sleep(0.3)

    def tools(self):
        """The listed tools."""
        return json.loads(self.run("tools", "--json")[1])["tools"]

    def settle(self, upstream=None, names=(), seconds=60):
        """Waits until these tools are listed, and the tools have not changed for a second: some servers add tools late."""
        until, seen, since = time.monotonic() + seconds, None, time.monotonic()
        while time.monotonic() < until:
            listed = [tool["name"] for tool in self.tools() if upstream in (None, tool["upstream"])]
            if listed != seen:
                seen, since = listed, time.monotonic()
            if set(names) <= set(listed) and time.monotonic() - since > 1:
                return
            time.sleep(0.3)

    def http(self, modern=False):
        return Http(self.port, self.token, modern)


def table(rows):
    """Rows as a Markdown table."""
    rows = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
