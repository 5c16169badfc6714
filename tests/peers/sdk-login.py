"""A client on the official Python SDK, 1.x or 2.x, that knows an address and nothing else.

The job and the report are those of sdk-login.mjs; `SDK` is the installed one, whatever the job says.
"""

import asyncio
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from importlib.metadata import version

from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

JOB = json.loads(sys.argv[1])
BACK = "http://127.0.0.1:9/callback"
IS_OLD = version("mcp").startswith("1.")
LOGINS: list[str] = []
RESOURCES: list[str] = []


class Stop(urllib.request.HTTPRedirectHandler):
    """Follows redirects up to the one that leads back to the client."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if newurl.startswith(BACK):
            raise StopIteration(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def browse(url: str) -> str:
    opener = urllib.request.build_opener(Stop(), urllib.request.HTTPCookieProcessor(CookieJar()))
    try:
        answer = opener.open(url, timeout=30)
    except StopIteration as end:
        return end.value if isinstance(end.value, str) else end.args[0]
    raise RuntimeError(f"stuck at {answer.url}")


class Storage:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens) -> None:
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info) -> None:
        self.client = client_info


class Person:
    """Signs in at the page that the SDK names."""

    sent: dict[str, list[str]] = {}

    async def redirect(self, url: str) -> None:
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
        LOGINS.append(asked.get("scope", [""])[0])
        RESOURCES.append(asked.get("resource", [""])[0])
        end = await asyncio.to_thread(browse, url)
        self.sent = urllib.parse.parse_qs(urllib.parse.urlsplit(end).query)

    async def callback(self):
        code, state, iss = (self.sent.get(name, [None])[0] for name in ("code", "state", "iss"))
        if IS_OLD:
            return code, state
        from mcp.shared.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(code=code, state=state, iss=iss)


def text_of(content) -> str:
    return "\n".join(getattr(part, "text", None) or f"<{part.type}>" for part in content)


async def play(auth) -> tuple[str, list[str], list[dict]]:
    """Lists the tools and makes the calls."""
    if IS_OLD:
        import httpx
        from mcp import ClientSession

        async with (
            httpx.AsyncClient(auth=auth, timeout=60) as http,
            streamable_http_client(JOB["url"], http_client=http) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            protocol = (await session.initialize()).protocolVersion
            tools = [tool.name for tool in (await session.list_tools()).tools]
            results = [(call, await session.call_tool(call["name"], call["arguments"])) for call in JOB["calls"]]
            calls = [{"name": c["name"], "isError": bool(r.isError), "text": text_of(r.content)} for c, r in results]
            return protocol, tools, calls
    import httpx2
    from mcp.client import Client

    mode = {"modern": "2026-07-28"}.get(JOB["era"], JOB["era"])
    http = httpx2.AsyncClient(auth=auth, timeout=60)
    async with Client(streamable_http_client(JOB["url"], http_client=http), mode=mode) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        results = [(call, await client.call_tool(call["name"], call["arguments"])) for call in JOB["calls"]]
        calls = [{"name": c["name"], "isError": bool(r.is_error), "text": text_of(r.content)} for c, r in results]
        return client.protocol_version, tools, calls


async def main() -> None:
    person, storage = Person(), Storage()
    metadata = OAuthClientMetadata(
        client_name="a client of the SDK",
        redirect_uris=[BACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
        **({} if IS_OLD else {"application_type": "native"}),
    )
    auth = OAuthClientProvider(JOB["url"], metadata, storage, person.redirect, person.callback)
    protocol, tools, calls = await play(auth)
    report = {"protocol": protocol, "tools": tools, "calls": calls, "logins": LOGINS, "resources": RESOURCES}
    print(json.dumps({**report, "scope": storage.tokens.scope}))


asyncio.run(main())
