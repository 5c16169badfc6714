"""Canaille, an authorization server with a real login form, and one person: user `alice`, password `canary-password`.

Prints one JSON object a line: first `{"event":"listening","issuer":...}`, then each request: the witness of a test.
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
    alice = models.User(
        formatted_name="Alice", family_name="Alice", user_name="alice", emails=["alice@example.com"], password="canary-password"
    )
    Backend.instance.save(alice)

say("listening", issuer=f"http://{address}")
server = make_server("127.0.0.1", int(address.rsplit(":", 1)[1]), app, threaded=True, fd=listener.fileno())
server.serve_forever()
