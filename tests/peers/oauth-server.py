"""An MCP server on FastMCP that wants a login.

The first argument says who issues its tokens: `remote`, the authorization server in ISSUER, whose tokens are for this server alone;
`plain`, one whose tokens name no server and no scopes; or `own`, FastMCP's own one. JWKS is the place of the issuer's keys. Prints one
JSON object a line: first `{"event":"listening","url":...}`, then each call that reached a tool: the witness of a test.
"""

import json
import os
import socket
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from pydantic import AnyHttpUrl


def say(event: str, **more) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


listener = socket.socket()
listener.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
base = f"http://127.0.0.1:{listener.getsockname()[1]}"

if sys.argv[1] in ("remote", "plain"):
    issuer = os.environ["ISSUER"]
    is_plain = sys.argv[1] == "plain"
    verifier = JWTVerifier(
        jwks_uri=os.environ.get("JWKS", f"{issuer}/jwks"),
        issuer=issuer,
        audience=None if is_plain else f"{base}/mcp",
        required_scopes=[] if is_plain else ["mcp:read"],
    )
    auth = RemoteAuthProvider(
        token_verifier=verifier,
        authorization_servers=[AnyHttpUrl(issuer)],
        base_url=base,
        scopes_supported=["openid", "profile"] if is_plain else ["mcp:read"],
    )
else:
    auth = InMemoryOAuthProvider(
        base_url=base,
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["mcp:read"]),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=["mcp:read"],
    )

mcp = FastMCP("guarded", auth=auth)


@mcp.tool
def whoami(n: int = 0) -> str:
    """Says whose token the call came with."""
    token = get_access_token()
    subject = (token.claims or {}).get("sub", token.client_id)
    say("call", n=n, subject=subject, scopes=token.scopes)
    return f"{subject} {n}"


app = mcp.http_app(path="/mcp")
say("listening", url=f"{base}/mcp")
config = uvicorn.Config(app, log_level="warning", lifespan="on")
uvicorn.Server(config).run(sockets=[listener])
