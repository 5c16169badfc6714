"""Canaille, an authorization server with a real login form, and two people: users `alice` and `bob`, password `canary-password`.

Prints one JSON object a line: first `{"event":"listening","issuer":...,"key":...}` with its private key, by which tests sign tokens
that it would never issue, then each request: the witness of a test.

Its access tokens are JWTs of type `JWT` for the client's own id. They have no scope; the groups of the person are a claim. The client
`team` is registered beforehand.
"""

import json
import logging
import os
import socket

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server


def say(event: str, **more) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
listener.listen()
address = f"127.0.0.1:{listener.getsockname()[1]}"
key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True).as_dict(private=True)
config = {
    "SECRET_KEY": "a secret of the test alone",
    "SERVER_NAME": address,
    "PREFERRED_URL_SCHEME": "http",
    "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "HTMX": False},
    "CANAILLE_OIDC": {"DYNAMIC_CLIENT_REGISTRATION_OPEN": True, "ACTIVE_JWKS": [key]},
}
app = create_app(config)
logging.getLogger("werkzeug").setLevel(logging.ERROR)


@app.after_request
def witness(response):
    from flask import request

    say("request", method=request.method, path=request.path, status=response.status_code)
    return response


with app.app_context():
    people = []
    for name in ("alice", "bob"):
        person = models.User(
            formatted_name=name.title(),
            family_name=name.title(),
            user_name=name,
            emails=[f"{name}@example.com"],
            password="canary-password",
        )
        Backend.instance.save(person)
        people.append(person)
    Backend.instance.save(models.Group(display_name="mcp:read", members=people))
    Backend.instance.save(models.Group(display_name="writers", members=people[:1]))
    client = models.Client(
        client_id="team",
        client_name="The team's client",
        # Canaille asks for no consent to clients of trusted domains.
        client_uri="http://127.0.0.1",
        redirect_uris=["http://127.0.0.1:9/callback"],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        scope=["openid", "profile", "groups"],
        token_endpoint_auth_method="none",
    )
    Backend.instance.save(client)
    client.audience = [client]
    Backend.instance.save(client)

say("listening", issuer=f"http://{address}", key=key)
server = make_server("127.0.0.1", int(address.rsplit(":", 1)[1]), app, threaded=True, fd=listener.fileno())
server.serve_forever()
