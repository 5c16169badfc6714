"""Compares real servers behind one headend with the same servers asked directly.

Each server is asked twice directly and once more in a second process, then through headend by a client of each era; then it is killed
and asked again by the same clients, then restarted by `headend restart` and asked once more. Whatever two direct clients see
differently is the server's own state. Every other difference needs a reason: a rule below, or the server's entry in servers.json.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unicodedata

import install
from world import Daemon, Failed, Pipe, table

LISTS = {
    "tool": ("tools/list", "tools", "name"),
    "prompt": ("prompts/list", "prompts", "name"),
    "resource": ("resources/list", "resources", "uri"),
    "template": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
CALLS = ("call", "bare", "get", "read")
NAMED = "io.modelcontextprotocol/serverInfo"
# Only modern results have these.
MODERN_MEMBERS = ("resultType", "ttlMs", "cacheScope")
DOT = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301"
                    "0100c9fe92ef0000000049454e44ae426082")


class Server:
    """One entry of servers.json, installed."""

    def __init__(self, entry, shared):
        self.name, self.entry, self.shared = entry["name"], entry, shared
        self.calls, self.prompts = entry.get("calls", []), entry.get("prompts", [])
        self.reasons = entry.get("reasons", {})
        first, *rest = entry["command"]
        if "npm" in entry:
            self.version = install.version_of_npm(entry["npm"])
            program = install.program_of_npm(entry["npm"], first)
        else:
            self.version = entry["pip"][0].split("==")[1]
            folder = install.python(entry.get("venv", self.name), entry["pip"])
            if folder is None:
                raise Failed("its packages cannot be installed here")
            program = [str(folder / "bin" / first)]
        self.command = [*program, *rest]
        self.listening, self.port = None, 0

    def fill(self, value, state):
        """Placeholders of an entry: folders that all share, and one of this run."""
        text = json.dumps(value)
        for name, folder in {**self.shared, "state": state}.items():
            text = text.replace("{" + name + "}", str(folder))
        return json.loads(text)

    def environment(self, state):
        return self.fill({**self.entry.get("env", {}), "HEADEND_PEER": self.name}, state)

    def table(self, state):
        """Its table of the configuration."""
        if "http" in self.entry:
            return f'[upstreams.{self.name}]\nurl = "{self.listen()}"\n'
        command = json.dumps(self.fill(self.command, state))
        variables = ", ".join(f"{key} = {json.dumps(value)}" for key, value in self.environment(state).items())
        return f"[upstreams.{self.name}]\ncommand = {command}\nenv = {{ {variables} }}\nstart-timeout = \"5m\"\n"

    def listen(self):
        """Starts it behind HTTP, from the second time on at the same port; its URL."""
        script = pathlib.Path(__file__).parents[1] / "everything.mjs"
        self.listening = subprocess.Popen(
            [install.gate("node") / "node_modules/.bin/node", script, install.NODE, self.entry["http"], str(self.port)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )
        url = self.listening.stdout.readline().strip()
        self.port = int(url.split(":")[2].split("/")[0])
        return url

    def direct(self, state, modern=False):
        state.mkdir(parents=True, exist_ok=True)
        home = {"HOME": str(state), "PATH": install.path(), "LANG": "C.UTF-8"}
        return Pipe(self.fill(self.command, state), {**home, **self.environment(state)}, state, modern)

    def kill(self, headend):
        """Kills its processes, the guard aside; how many."""
        if self.listening:
            os.killpg(self.listening.pid, signal.SIGKILL)
            self.listening.wait()
            self.listen()
            return 1
        killed = 0
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                mine = f"HEADEND_PEER={self.name}\0".encode() in (folder / "environ").read_bytes()
                if mine and os.readlink(folder / "exe") != headend:
                    os.kill(int(folder.name), signal.SIGKILL)
                    killed += 1
            except OSError:
                continue
        return killed


def look(server, client, state, names=None):
    """Everything that a client sees of a server, by its own names. `names` maps those to the ones that headend shows."""
    seen, through = {}, names is not None
    shown = names or {}
    items = {}
    for kind, (method, member, key) in LISTS.items():
        listed, error = client.list(method, member)
        if error is not None and not through and error.get("code") != "number -32601":
            seen[f"list/{kind}"] = error
        items[kind] = {item[key]: item for item in listed}
    def exposed(kind, own):
        return shown.get(f"{kind}/{own}", f"{server.name}__{own}" if kind in ("tool", "prompt") else own) if through else own
    if through:
        wanted = {kind: [key.split("/", 1)[1] for key in shown if key.startswith(kind + "/")] for kind in LISTS}
    else:
        wanted = {kind: list(found) for kind, found in items.items()}
    for kind, owns in wanted.items():
        for own in owns:
            item = items[kind].get(exposed(kind, own))
            if item is None and kind in ("resource", "template"):
                item = items[kind].get(f"{server.name}+{own}")
                shown[f"{kind}/{own}"] = f"{server.name}+{own}" if item else own
            if item is not None:
                seen[f"{kind}/{own}"] = {k: v for k, v in item.items() if k != LISTS[kind][2]}
    def ask(key, method, params):
        answer = client.ask(method, params)
        answer = {**answer, "result": {k: v for k, v in answer["result"].items() if k not in MODERN_MEMBERS}} if "result" in answer else answer
        text = json.dumps(answer).replace(str(state), "{state}")
        seen[key] = json.loads(text)
    for number, (tool, arguments) in enumerate(server.calls):
        arguments = server.fill(arguments, state)
        ask(f"call/{number} {tool}", "tools/call", {"name": exposed("tool", tool), "arguments": arguments})
    if server.entry.get("probe", True):
        # A call without any of its arguments does nothing but fail.
        for tool in wanted["tool"]:
            if seen.get(f"tool/{tool}", {}).get("inputSchema", {}).get("required"):
                ask(f"bare/{tool}", "tools/call", {"name": exposed("tool", tool), "arguments": {}})
    given = dict(server.prompts)
    for prompt in wanted["prompt"]:
        needed = any(a.get("required") for a in seen.get(f"prompt/{prompt}", {}).get("arguments") or [])
        if prompt in given or not needed:
            params = {"name": exposed("prompt", prompt)} | ({"arguments": given[prompt]} if prompt in given else {})
            ask(f"get/{prompt}", "prompts/get", params)
    for uri in wanted["resource"][:8]:
        ask(f"read/{uri}", "resources/read", {"uri": exposed("resource", uri)})
    if through:
        extra = [name for name in items["prompt"] if name.startswith(f"{server.name}__")]
        seen |= {f"prompt/{name}": {} for name in extra if name.removeprefix(f"{server.name}__") not in wanted["prompt"]}
    return seen


def plain(text):
    """A text without characters that people do not see."""
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc") or c in "\n\t\r") if isinstance(text, str) else text


def why(server, key, member, own, got, others):
    """Why headend shows another value of a member, or None."""
    kind = key.split("/")[0]
    left, right = own.get(member), got.get(member)
    for pattern, reason in server.reasons.items():
        if pattern == f"{key}#{member}":
            return reason
    if member == "annotations" and isinstance(left, dict) and left.get("title") in others:
        left, right = ({k: v for k, v in hints.items() if k != "title"} for hints in (left, right or {}))
        if left == right:
            return "another server has this title"
    if member == "title" and left in others and right in (None, f"{server.name}: {left}"):
        return "another server has this title"
    if member == "execution" and right is None:
        return "tasks of 2025-11-25 are not offered"
    if member == "result" and kind in CALLS and left and right and right.get("_meta", {}).keys() - left.get("_meta", {}).keys() == {NAMED}:
        if {**right, "_meta": {k: v for k, v in right["_meta"].items() if k != NAMED}} in (left, {**left, "_meta": {}}):
            return "the server's modern answers name it in _meta"
    if member in ("title", "description") and plain(left) == plain(right):
        return "hidden characters removed"
    return None


def shape(value):
    """The members and types of a value."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return sorted({json.dumps(shape(inner)) for inner in value})
    return type(value).__name__


def compare(server, direct, again, got, others, modern):
    """How many of the direct client's values are equal, and the others with their reasons (None: unexplained). `modern`: what a direct
    client of the modern era sees, where the server speaks it: so does headend, whatever its client speaks."""
    equal, differences = 0, []
    tools = [key.split("/", 1)[1] for key in direct if key.startswith("tool/")]
    descriptions = lambda tool: {view.get(f"tool/{tool}", {}).get("description") for view in (direct, *again)}
    restless = {tool for tool in tools if len(descriptions(tool)) > 1 and f"tool/{tool}" not in got}
    for key in sorted({*direct, *got}):
        own, seen = direct.get(key), got.get(key)
        if own == seen and json.dumps(own) == json.dumps(seen):
            equal += 1
            continue
        unstable = any(other.get(key) != own for other in again)
        if own is None or seen is None:
            gone = any(key not in other for other in again)
            reason = server.reasons.get(key) or ("the server's own state" if gone else None)
            if seen is None and (key.split("/", 1)[1] if "/" in key else "") in restless:
                reason = "its description changes at every start, so it is withheld"
            differences.append((key, "", reason, "missing directly" if own is None else "missing behind headend"))
            continue
        if own == seen:
            is_theirs = json.dumps(modern.get(key)) == json.dumps(seen)
            reason = "the server's own order for modern clients" if is_theirs else None
            differences.append((key, "", reason, "other order of members"))
            continue
        if unstable and shape(own) == shape(seen):
            differences.append((key, "", "the server's own state: direct clients differ too", ""))
            continue
        for member in sorted({*own, *seen}):
            if own.get(member) != seen.get(member):
                if any(other.get(key, {}).get(member) != own.get(member) for other in again) and shape(own.get(member)) == shape(seen.get(member)):
                    differences.append((key, member, "the server's own state: direct clients differ too", ""))
                    continue
                if member in ("result", "error") and key.split("/", 1)[1].split(" ")[-1] in restless:
                    differences.append((key, member, "its description changes at every start, so it is withheld", ""))
                    continue
                detail = f"{json.dumps(own.get(member), ensure_ascii=False)[:300]} -> {json.dumps(seen.get(member), ensure_ascii=False)[:300]}"
                differences.append((key, member, why(server, key, member, own, seen, others), detail))
    return equal, differences


def soon(server, client, names, state):
    """What becomes of a call right after the death of its server."""
    if not server.calls:
        return "-"
    tool, arguments = server.calls[0]
    params = {"name": names.get(f"tool/{tool}", tool), "arguments": server.fill(arguments, state)}
    try:
        answer = client.ask("tools/call", params)
    except (Failed, OSError) as error:
        return str(error)
    result = answer.get("result", {})
    return "answered" if result and not result.get("isError") else json.dumps(answer.get("error") or result)[:160]


def shared(folder):
    """Files, a repository and a database that all runs read."""
    files, repository = folder / "files", folder / "repository"
    files.mkdir(parents=True)
    repository.mkdir()
    (files / "note.txt").write_text("written for the comparison\nsecond line\n")
    (files / "dot.png").write_bytes(DOT)
    ada = {"type": "entity", "name": "ada", "entityType": "person", "observations": ["counts"]}
    (files / "memory.jsonl").write_text(json.dumps(ada) + "\n")
    with sqlite3.connect(files / "data.db") as database:
        database.execute("create table n (id integer, word text)")
        database.execute("insert into n values (1, 'one'), (2, 'zwei')")
    (repository / "a.txt").write_text("a\n")
    who = ["-c", "user.name=Peer", "-c", "user.email=peer@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    return {"files": files, "repository": repository}


def directly(server, folder, modern):
    """The direct view, and the same again in that process and in another one."""
    views = []
    for turn in range(2):
        state = folder / f"{server.name}-{turn}-{'modern' if modern else 'legacy'}"
        client = server.direct(state, modern)
        try:
            time.sleep(1.5 if server.entry["command"][-1] == "stdio" else 0.2)
            views += [look(server, client, state) for _ in range(2 - turn)]
        finally:
            client.close()
    return views[0], views[1:]


def main(options):
    entries = json.loads((pathlib.Path(__file__).parent / "servers.json").read_text())
    entries = [e for e in entries if (e["name"] in options.names if options.names else e.get("quick") or not options.quick)]
    install.node()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headend-servers-"))
    common, servers, left_out = shared(folder), [], []
    for entry in entries:
        try:
            servers.append(Server(entry, common))
        except (Failed, OSError, KeyError) as error:
            left_out.append((entry["name"], str(error)))
    daemon = None
    try:
        states = {server.name: folder / f"{server.name}-headend" for server in servers}
        for state in states.values():
            state.mkdir()
        tables = "".join(server.table(states[server.name]) for server in servers)
        daemon = Daemon(options.headend, tables, environment={"PATH": install.path()})
        late = daemon.wait([server.name for server in servers], 150)
        left_out += [(name, f"does not start here: {error}") for name, error in late.items()]
        servers = [server for server in servers if server.name not in late]
        wrong = play(options, daemon, servers, states, folder, left_out)
    finally:
        if daemon and daemon.process.poll() is None:
            print(f"\nthe daemon ended in {daemon.stop():.1f} s, exit {daemon.process.returncode}")
            if options.keep:
                print(f"kept: {daemon.folder} {folder}")
            else:
                shutil.rmtree(daemon.folder, ignore_errors=True)
        for server in servers:
            if server.listening:
                server.listening.kill()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def play(options, daemon, servers, states, folder, left_out):
    """Every comparison, the table, and the number of unexplained differences."""
    status = daemon.status()

    def both(server):
        views = {False: directly(server, folder, False)}
        if status[server.name]["revision"] >= "2026" and "http" not in server.entry:
            views[True] = directly(server, folder, True)
        return views

    direct = {}
    with concurrent.futures.ThreadPoolExecutor(2) as lanes:
        jobs = {server.name: lanes.submit(both, server) for server in servers}
        for server in list(servers):
            try:
                direct[server.name] = jobs[server.name].result()
            except Failed as error:
                left_out.append((server.name, f"a direct client fails: {error}"))
                servers.remove(server)
    daemon.settle()
    tools = daemon.tools()
    titles = {}
    for server in servers:
        for key, value in direct[server.name][False][0].items():
            if key.split("/")[0] in LISTS:
                for title in (value.get("title"), (value.get("annotations") or {}).get("title")):
                    titles.setdefault(title, set()).add(server.name)
    rows = [["server", "version", "revision", "tools", "prompts", "resources", "calls", "legacy", "modern", "killed", "restarted", "back after; a call at once"]]
    notes = {}
    print("equal + explained + unexplained values, of the legacy and the modern client:")

    def one(server):
        """The row of one server, how many calls and how many things wrong."""
        clients = {False: daemon.http(), True: daemon.http(modern=True)}
        wrong = 0
        others = {title for title, owners in titles.items() if title is not None and owners - {server.name}}
        plain_view = direct[server.name][False][0]
        names = {key: key.split("/", 1)[1] for key in plain_view if key.split("/")[0] in ("resource", "template")}
        names |= {key: f"{server.name}__{key.split('/', 1)[1]}" for key in plain_view if key.startswith(("tool/", "prompt/"))}
        names |= {f"tool/{tool['original']}": tool["name"] for tool in tools if tool["upstream"] == server.name}
        counts = [0, 0, 0]
        cells = []

        def turn(label, server=server, names=names, others=others, counts=counts):
            """Both clients look; how many values are equal, explained and wrong."""
            for modern, client in clients.items():
                own, again = direct[server.name].get(modern) or direct[server.name][False]
                newest = direct[server.name].get(True, ({},))[0]
                try:
                    got = look(server, client, states[server.name], dict(names))
                    equal, differences = compare(server, own, again, got, others, newest)
                except (Failed, OSError) as error:
                    equal, differences = 0, [("client", "", None, f"{type(error).__name__}: {error}")]
                bad = {key for key, _, reason, _ in differences if reason is None}
                sums = [equal, len({key for key, *_ in differences} - bad), len(bad)]
                counts[:] = [sum(pair) for pair in zip(counts, sums)]
                for key, member, reason, detail in differences:
                    where = key + (f" {member}" if member else "") if reason is None else f"{key.split('/')[0]} {member}".strip()
                    note = notes.setdefault((server.name, where, reason or "UNEXPLAINED"), [set(), set(), detail, key])
                    note[0].add(key)
                    note[1].add(f"{label} {'modern' if modern else 'legacy'}")
                yield " + ".join(str(number) for number in sums)

        cells += turn("first")
        life = None if server.listening else daemon.status()[server.name]["incarnation"]
        begun, killed = time.monotonic(), server.kill(str(pathlib.Path(options.headend).resolve()))
        at_once = soon(server, clients[False], names, states[server.name])
        late = daemon.wait([server.name], 90, life)
        back = f"{time.monotonic() - begun:.1f} s; {at_once}" if killed and not late else f"killed {killed}, {late}"
        wrong += 1 if late or not killed else 0
        daemon.settle(server.name)
        cells.append(", ".join(turn("killed")))
        code, text = daemon.run("restart", server.name)
        wrong += code != 0
        daemon.settle(server.name)
        cells.append(", ".join(turn("restarted")) if code == 0 else f"exit {code}: {text.strip()[-200:]}")
        count = lambda kind: sum(key.startswith(kind) for key in plain_view)
        asked = count("call/") + count("bare/") + count("get/") + count("read/")
        row = [server.name, server.version, status[server.name]["revision"], count("tool/"), count("prompt/"), count("resource/") + count("template/"), asked, *cells, back]
        print(" ".join(str(cell) for cell in row), flush=True)
        return row, asked, wrong + counts[2]

    with concurrent.futures.ThreadPoolExecutor(3) as lanes:
        played = list(lanes.map(one, servers))
    rows += [row for row, _, _ in played]
    calls, wrong = sum(asked for _, asked, _ in played), sum(bad for _, _, bad in played)
    print("\n" + table(rows))
    print(f"\n{len(servers)} servers, {sum(int(row[3]) for row in rows[1:])} tools, {calls} calls; {wrong} unexplained differences")
    if notes:
        told = [["server", "where", "reason", "values", "seen by", "for example"]]
        for (name, where, reason), (keys, by, detail, example) in sorted(notes.items(), key=lambda note: (note[0][2] != "UNEXPLAINED", note[0])):
            told.append([name, where, reason, len(keys), "all" if len(by) == 6 else ", ".join(sorted(by)), detail if reason == "UNEXPLAINED" else example])
        print("\n" + table(told))
    for name, error in left_out:
        print(f"left out: {name}: {error}")
    waiting = [line for line in daemon.run("pins")[1].splitlines()[1:] if " pinned " not in line]
    print("\nheadend pins, not pinned:\n" + "\n".join(waiting))
    return wrong
