"""Plays an agent's 100 calls of desk.json behind config/desk.toml, with the servers for files, git, time and everything, and counts
the questions.

The client can show no forms, so a person answers on the command line: each question once, and the call is made again where the
daemon did not hold it. Reading needs no question, and no call that its server calls destructive runs without one.
"""

import collections
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import install
import world
from world import ROOT, Daemon, Failed, table

HERE = pathlib.Path(__file__).resolve().parent
NAMES = {"filesystem": "files", "git": "git", "time": "time", "everything": "everything"}


class Desk(Daemon):
    """A daemon under the policy of config/desk.toml."""

    def write(self):
        policy = (ROOT / "config/desk.toml").read_text().split("[policy]\n")[1]
        # The bounds on questions are not what is played here.
        consent = "\n[policy.consent]\nper-minute = 100\nmax-open = 100\n"
        text = f'[server]\nlisten = ["127.0.0.1:{self.port}"]\n[metrics]\nlisten = ""\n[console]\nlisten = ""\n'
        self.config.touch(0o600)
        self.config.write_text(f"{text}{self.upstreams}[policy]\n{policy}{consent}")


def tables(folder):
    """The upstreams of the configuration, by the names of config/desk.toml."""
    entries = {entry["name"]: entry for entry in json.loads((HERE / "servers.json").read_text())}
    out = ""
    for entry, name in NAMES.items():
        first, *rest = entries[entry]["command"]
        if "npm" in entries[entry]:
            program = install.program_of_npm(entries[entry]["npm"], first)
        else:
            venv = install.python(entries[entry].get("venv", entry), entries[entry]["pip"])
            if venv is None:
                raise Failed(f"the packages of {entry} cannot be installed here")
            program = [str(venv / "bin" / first)]
        out += f"[upstreams.{name}]\ncommand = {filled([*program, *rest], folder)}\nstart-timeout = \"5m\"\n"
    return out


def filled(value, folder):
    text = json.dumps(value)
    return text.replace("{files}", str(folder / "files")).replace("{repository}", str(folder / "repository"))


def fill(folder):
    """Something to read and to change."""
    texts = {
        "notes/plan.md": "# Plan\nRead.\nWrite.\n", "notes/a.md": "# A\n", "notes/b.md": "# B\n",
        "src/main.py": "import util\nprint(util.one())\n", "src/util.py": "def one():\n    return 1\n",
    }
    for name, text in texts.items():
        file = folder / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    repository = folder / "repository"
    repository.mkdir()
    git = lambda *words: subprocess.run(["git", *words], cwd=repository, check=True, stdout=subprocess.DEVNULL)
    git("init", "-q", "-b", "main")
    git("config", "user.name", "desk")
    git("config", "user.email", "desk@example.com")
    for number in range(2):
        with (repository / "readme.md").open("a") as file:
            file.write(f"Line {number}.\n")
        git("add", "readme.md")
        git("commit", "-q", "-m", f"Line {number}")
    with (repository / "readme.md").open("a") as file:
        file.write("One more.\n")


def answered(daemon):
    """Approves what is open; how many."""
    code, text = daemon.run("approvals", "--json")
    ids = [row["id"] for row in json.loads(text)["approvals"]] if code == 0 else []
    return sum(daemon.run("approve", one)[0] == 0 for one in ids)


def play(daemon, client, lanes, name, arguments):
    """One call until it ran; the questions that it needed, and its result."""
    questions = 0
    for _ in range(3):
        call = lanes.submit(client.ask, "tools/call", {"name": name, "arguments": arguments})
        while not concurrent.futures.wait([call], 0.3).done:
            questions += answered(daemon)
        answer = call.result()
        refusal = answer.get("result", {}).get("_meta", {}).get("headend/refusal")
        if refusal is None:
            return questions, answer
        if refusal["reason"] != "awaiting_approval":
            raise Failed(f"{name}: {refusal}")
        questions += answered(daemon)
    raise Failed(f"{name}: three times asked about")


def main(options):
    install.node()
    # A client without forms.
    world.CAPABILITIES.clear()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headend-desk-"))
    fill(folder)
    calls = json.loads(filled(json.loads((HERE / "desk.json").read_text()), folder))
    daemon = Desk(options.headend, tables(folder), environment={"PATH": install.path()})
    lanes = concurrent.futures.ThreadPoolExecutor(1)
    counts, wrong = collections.defaultdict(collections.Counter), []
    try:
        if late := daemon.wait(NAMES.values()):
            raise Failed(f"{late}")
        daemon.settle()
        client = daemon.http()
        said = {tool["name"]: tool.get("annotations") or {} for tool in client.list("tools/list", "tools")[0]}
        begun = time.monotonic()
        for kind, name, arguments in calls:
            questions, answer = play(daemon, client, lanes, name, arguments)
            counts[kind]["calls"] += 1
            counts[kind]["questions"] += questions
            counts[kind]["failed"] += "error" in answer or bool(answer["result"].get("isError"))
            if kind == "read" and questions:
                wrong.append(f"{name}: reading needs a question; its server says {said.get(name)}")
            if said.get(name, {}).get("destructiveHint") is True and questions != 1:
                wrong.append(f"{name}: its server calls it destructive, and it ran with {questions} questions")
        seconds = time.monotonic() - begun
        allowed = [tool["name"] for tool in daemon.tools() if tool.get("effect") == "allow"]
    finally:
        daemon.stop()
        if options.keep:
            print(f"kept: {daemon.folder} {folder}")
        else:
            shutil.rmtree(daemon.folder, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
    parts = ["calls", "questions", "failed"]
    rows = [["kind", *parts]] + [[kind, *(count[part] for part in parts)] for kind, count in counts.items()]
    rows.append(["all", *(sum(count[part] for count in counts.values()) for part in parts)])
    print(table(rows))
    print(f"\n{seconds:.0f} s; without a question run: {', '.join(sorted(allowed))}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0
