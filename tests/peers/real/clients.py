"""Restarts the daemon under client libraries that keep their client objects, over HTTP.

Each library calls a tool, the daemon ends by SIGTERM and starts again with the same folder and port, and the same object calls twice
more and lists the tools. `libraries.json` has the libraries; those that keep a session are the ones in doubt.
"""

import json
import os
import pathlib
import shutil
import subprocess
import threading

import install
from world import PATIENCE, Daemon, Failed, table

HERE = pathlib.Path(__file__).resolve().parent
STEPS = ["call", "call", "list", "call"]


class Library:
    """A running client program: it does one step for each line that it reads."""

    def __init__(self, entry, daemon):
        self.entry, self.name = entry, entry["name"]
        script = HERE / "clients" / entry["script"]
        environment = {**os.environ, "PATH": install.path(), "HOME": str(daemon.folder / "home")}
        environment |= {"URL": f"http://127.0.0.1:{daemon.port}/mcp", "TOKEN": daemon.token, **entry.get("env", {})}
        if script.suffix == ".py":
            if "pip" in entry:
                folder = install.python(f"client-{self.name}", entry["pip"])
            else:
                folder = install.gate("venv")
            if folder is None:
                raise Failed("its packages cannot be installed here")
            program = folder / "bin/python"
        else:
            program, script = install.gate("node") / "node_modules/.bin/node", install.script(f"clients/{script.name}")
            install.script("clients/steps.mjs")
        self.errors = open(daemon.folder / f"client-{self.name}", "wb")
        self.process = subprocess.Popen(
            [program, script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )

    def step(self, word):
        """`ok`, or what went wrong."""
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except OSError:
            return f"ended with {self.process.wait()}"
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        line = "{"
        while line and not line.startswith('{"step"'):
            line = self.process.stdout.readline()
        watch.cancel()
        if not line:
            return f"ended with {self.process.wait()}"
        said = json.loads(line)
        return "ok" if said["ok"] else said["text"].replace("\n", " ")[:200]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.errors.close()


def main(options):
    entries = json.loads((HERE / "libraries.json").read_text())
    entries = [e for e in entries if (e["name"] in options.names if options.names else e.get("quick") or not options.quick)]
    install.node()
    server = install.program_of_npm("@modelcontextprotocol/server-everything", "mcp-server-everything")
    daemon = Daemon(options.headend, f"[upstreams.every]\ncommand = {json.dumps([*server, 'stdio'])}\n", environment={"PATH": install.path()})
    rows = [["library", "version", "era", "before", "first call after the restart", "second call", "list", "third call"]]
    libraries, wrong = [], 0
    try:
        if late := daemon.wait(["every"]):
            raise Failed(f"{late}")
        daemon.settle(names=["every__echo"])
        seen = []
        for entry in entries:
            try:
                library = Library(entry, daemon)
            except Failed as error:
                print(f"left out: {entry['name']}: {error}")
                continue
            libraries.append(library)
            seen.append([library.step("call")])
            print(f"{library.name}: {seen[-1][0]}", flush=True)
        print(f"\nthe daemon ended in {daemon.stop():.1f} s, exit {daemon.process.returncode}", flush=True)
        daemon.start()
        for library, said in zip(libraries, seen):
            said += [library.step(word) for word in STEPS]
            rows.append([library.name, library.entry["version"], library.entry["era"], said[0], said[1], said[2], said[3], said[4]])
            print(" | ".join(rows[-1]), flush=True)
            # A library that refuses to connect says nothing about restarts, and is wrong all the same.
            wrong += any(word != "ok" for word in said)
    finally:
        for library in libraries:
            library.close()
        if daemon.process.poll() is None:
            daemon.stop()
        if options.keep:
            print(f"kept: {daemon.folder}")
        else:
            shutil.rmtree(daemon.folder, ignore_errors=True)
    print("\n" + table(rows))
    print(f"\n{len(libraries) - wrong} of {len(libraries)} libraries survive a restart without being rebuilt")
    return 1 if wrong else 0
