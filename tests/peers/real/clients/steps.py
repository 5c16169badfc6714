"""What the Python clients have in common: one step for each line of stdin, one line of JSON for its outcome."""

import asyncio
import json
import os
import sys

URL, TOKEN = os.environ["URL"], os.environ["TOKEN"]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
NAME, ARGUMENTS, WANTED = "every__echo", {"message": "still here"}, "still here"


async def play(call, tools):
    """`call` gives the text of the echo, `tools` the names of all tools."""
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        try:
            said = await asyncio.wait_for(tools() if word == "list" else call(), 90)
            good = NAME in said if word == "list" else WANTED in str(said)
            text = "" if good else repr(said)[:300]
        except (Exception, asyncio.CancelledError) as error:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            good, text = False, f"{type(error).__name__}: {error}"
        print(json.dumps({"step": word, "ok": good, "text": text}), flush=True)
