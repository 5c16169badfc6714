"""Tests of headend against programs that nobody here wrote, apart from the gate.

    python3 tests/peers/real/run.py servers|clients|questions|desk [--quick] [--headend PROGRAM] [NAME...]

`servers` compares servers behind headend with the same servers asked directly, `clients` restarts the daemon under client libraries,
`questions` lets six clients call tools that ask over one shared process, `desk` plays 100 calls behind config/desk.toml and counts the
questions. Each prints a table and ends with 1 if something is wrong.
"""

import argparse
import pathlib
import sys

import clients
import desk
import questions
import servers
from world import ROOT

PARTS = {"servers": servers.main, "clients": clients.main, "questions": questions.main, "desk": desk.main}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("names", nargs="*", help="these servers or libraries only")
    parser.add_argument("--quick", action="store_true", help="a selection that takes a minute or two")
    parser.add_argument("--headend", type=pathlib.Path, default=ROOT / "target/debug/headend")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the run, with the daemon's log")
    parser.add_argument("--rounds", type=int, help="rounds of `questions`, 1000 unless --quick")
    sys.exit(PARTS[parser.parse_args().part](parser.parse_args()))
