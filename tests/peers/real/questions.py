"""Six clients call tools that ask and plain tools of one shared process of the reference server, all at once, for 1,000 rounds.

In the first round every tool asks for the first time, and questions may be refused: headend cannot know yet which tools ask. From the
second round on each question has to reach the client whose call it belongs to.
"""

import json
import shutil
import subprocess

import install
from world import Daemon, Failed, table


def main(options):
    rounds = options.rounds or (50 if options.quick else 1000)
    install.node()
    node = install.gate("node") / "node_modules/.bin/node"
    server = install.program_of_npm("@modelcontextprotocol/server-everything", "mcp-server-everything")
    # One caller: with several, a shared process is told of no client that can be asked.
    lines = 'limits.caller-rate = "100000/s"\nlimits.caller-burst = 100000\n'
    # Roots of the configuration: asked for those of a client after its start, the server keeps the empty list that it gets for ever.
    upstream = f'[upstreams.every]\ncommand = {json.dumps([*server, "stdio"])}\nroots = ["file:///asked"]\n'
    daemon = Daemon(options.headend, upstream, server=lines, environment={"PATH": install.path()})
    try:
        if late := daemon.wait(["every"]):
            raise Failed(f"{late}")
        daemon.settle(names=["every__get-roots-list", "every__trigger-sampling-request"])
        job = json.dumps({"url": f"http://127.0.0.1:{daemon.port}/mcp", "token": daemon.token, "rounds": rounds})
        done = subprocess.run([node, install.script("questions.mjs"), job], stdout=subprocess.PIPE, text=True)
        if done.returncode or not done.stdout.strip():
            raise Failed(f"the clients ended with {done.returncode}")
        report = json.loads(done.stdout.splitlines()[-1])
        row = daemon.status()["every"]
    finally:
        daemon.stop()
        if options.keep:
            print(f"kept: {daemon.folder}")
        else:
            shutil.rmtree(daemon.folder, ignore_errors=True)
    later, plain = sum(report["later"].values()), sum(report["plain"].values())
    head = ["rounds", "calls", "questions answered", "refused in round 1", "refused later", "plain calls that failed", "at the wrong client", "slowest round", "one at a time"]
    print(table([head, [rounds, report["calls"], report["asked"], report["first"], later, plain, len(report["strays"]), f"{report['slowest']} ms", row.get("one-at-a-time")]]))
    for kind in ("later", "plain"):
        for said, times in sorted(report[kind].items(), key=lambda pair: -pair[1])[:20]:
            print(f"{kind}: {times} x {said!r}")
    for said in report["strays"][:20] + report.get("examples", [])[:12]:
        print(said)
    return 1 if later or plain or report["strays"] else 0
