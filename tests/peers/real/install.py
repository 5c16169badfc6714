"""Installs the servers and libraries below target/real: one folder for Node, one virtual environment for each entry of Python.

Install scripts of packages are not run. What is there is kept until its list changes.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from world import PEERS, ROOT

HERE = pathlib.Path(__file__).resolve().parent
REAL = pathlib.Path(os.environ.get("HEADEND_REAL_PEERS", ROOT / "target/real"))
NODE = REAL / "node"


def say(text):
    print(text, file=sys.stderr, flush=True)


def filled(folder, wanted):
    mark = folder / ".filled"
    return mark.exists() and mark.read_text() == wanted


def node():
    """The packages of package-lock.json."""
    wanted = (HERE / "package-lock.json").read_text()
    if filled(NODE, wanted):
        return
    say("installing packages for Node")
    shutil.rmtree(NODE, ignore_errors=True)
    NODE.mkdir(parents=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(HERE / name, NODE)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--loglevel=error"], cwd=NODE, check=True, stdout=sys.stderr)
    (NODE / ".filled").write_text(wanted)


def script(name):
    """A copy of a script of ours beside the packages that it imports."""
    return shutil.copy(HERE / name, NODE)


def python(name, packages):
    """A virtual environment with these packages; its folder, or None if they cannot be installed."""
    folder, wanted = REAL / f"venv-{name}", "\n".join(sorted(packages))
    if filled(folder, wanted):
        return folder
    say(f"installing {wanted.replace(chr(10), ' ')}")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [gate("venv") / "bin/pip", "--python", folder / "bin/python", "install", "--quiet", "--no-compile"]
    done = subprocess.run([*pip, *packages], stdout=sys.stderr)
    if done.returncode:
        return None
    (folder / ".filled").write_text(wanted)
    return folder


def gate(part):
    """A folder of peers that the gate has installed."""
    folder = PEERS / part
    if not folder.exists():
        raise SystemExit(f"{folder} is missing; install the gate's peers first, see tests/README.md")
    return folder


def path():
    """PATH with the Node of the gate's peers first."""
    return f"{gate('node') / 'node_modules/.bin'}:{os.environ['PATH']}"


def version_of_npm(package):
    return json.loads((NODE / "node_modules" / package / "package.json").read_text())["version"]


def program_of_npm(package, name):
    """A package's program, as a command."""
    folder = NODE / "node_modules" / package
    programs = json.loads((folder / "package.json").read_text()).get("bin", {})
    programs = {package: programs} if isinstance(programs, str) else programs
    script = folder / (programs[name] if name in programs else next(iter(programs.values())))
    first = script.open("rb").readline()
    return [str(gate("node") / "node_modules/.bin/node"), str(script)] if b"node" in first or first[:2] != b"#!" and script.suffix in (".js", ".mjs", ".cjs") else [str(script)]
