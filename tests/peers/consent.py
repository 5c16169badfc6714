"""A client on the official Python SDK 2.x that is told line by line what to call and how its person answers.

The lines are those of consent.mjs; "begin" makes a call by hand and reports the state of the question that it got.
"""

import json
import sys

import anyio
import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from job import JOB, MODE, TARGET, environment, text_of

plan: list[str] = []
current = 0
decided = {"answer": None, "event": anyio.Event()}


def transport():
    """A transport to the job's target."""
    if "url" in TARGET:
        headers = {"Authorization": f"Bearer {TARGET['token']}"} if TARGET.get("token") else {}
        return streamable_http_client(TARGET["url"], http_client=httpx2.AsyncClient(headers=headers, timeout=60))
    command, *args = TARGET["command"]
    return stdio_client(StdioServerParameters(command=command, args=args, env=environment()))


def say(line: dict) -> None:
    print(json.dumps(line), flush=True)


def response(answer: str, mode: str | None) -> ElicitResult:
    if answer == "all":
        answer = "accept" if mode == "url" else "session"
    if answer in ("accept", "decline", "cancel"):
        return ElicitResult(action=answer)
    return ElicitResult(action="accept", content={"decision": answer})


async def person(_context, params) -> ElicitResult:
    """Answers as planned, or when the test says what. Without a plan it closes the question."""
    planned = None
    if plan:
        planned = plan[0] if plan[0] == "all" else plan.pop(0)
    shown = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    say({"asked": {**shown, "unplanned": planned is None}, "call": current})
    if planned == "wait":
        decided["event"] = anyio.Event()
        await decided["event"].wait()
        planned = decided["answer"]
    if planned not in ("once", "session", "deny", "accept", "all"):
        # A person takes longer than the 300 ms within which headend takes an answer for that of a program.
        await anyio.sleep(0.4)
    return response(planned or "cancel", shown.get("mode"))


async def report(call: int, attempt) -> None:
    try:
        result = await attempt
    except Exception as error:
        say({"done": call, "failed": f"{type(error).__name__}: {error}", "code": getattr(getattr(error, "error", None), "code", None)})
        return
    if getattr(result, "request_state", None):
        say({"done": call, "state": result.request_state})
        return
    meta = result.meta or {}
    refusal = meta.get("headend/refusal")
    say({"done": call, "isError": bool(result.is_error), "text": text_of(result.content), "refusal": refusal})


async def obey(client: Client, command: dict) -> None:
    global current
    name, arguments = command.get("name"), command.get("arguments")
    if command["do"] == "answer":
        decided["answer"] = command["answer"]
        decided["event"].set()
        return
    current = command["call"]
    plan[:] = command.get("answers", [])
    if command["do"] == "begin":
        attempt = client.session.call_tool(name, arguments, allow_input_required=True)
    elif command["do"] == "resume":
        responses = {"gw.consent": response(command["answer"], None)}
        attempt = client.session.call_tool(
            name, arguments, input_responses=responses, request_state=command["state"], allow_input_required=True
        )
    else:
        timeout = command.get("timeout")
        attempt = client.call_tool(name, arguments, read_timeout_seconds=timeout / 1000 if timeout else None)
    await report(command["call"], attempt)


async def main() -> None:
    person_or_none = person if JOB["capabilities"].get("elicitation") is not None else None
    rounds = JOB.get("rounds") or 10
    async with Client(transport(), mode=MODE, elicitation_callback=person_or_none, input_required_max_rounds=rounds) as client:
        say({"protocol": client.protocol_version})
        async with anyio.create_task_group() as group:
            async for line in anyio.wrap_file(sys.stdin):
                group.start_soon(obey, client, json.loads(line))
            # Do not wait for an undecided person.
            group.cancel_scope.cancel()


anyio.run(main)
