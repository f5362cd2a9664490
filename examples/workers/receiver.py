#!/usr/bin/env python3
"""A push receiver for Tidegate in Python 3.9+, with the standard library only.

It accepts calls of a push target or of a completion callback, and verifies that Tidegate made them: signed as Standard
Webhooks specifies, and not older than five minutes.

    WEBHOOK_SECRET=whsec_... python3 receiver.py --port 8080

2xx: completed, and the body is the result. 429 or 503 with Retry-After: throttled. 410: send nothing more. Other
4xx: failed. 5xx: retried. Delivery is at least once; `webhook-id` stays the same when a call is retried.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SEC = 5 * 60
MAX_BODY = 16 * 1024 * 1024


class NotGenuine(Exception):
    """A call that Tidegate did not make, or too long ago."""


def verify(secret: str, headers, body: bytes, now: float | None = None) -> None:
    """Raises `NotGenuine` unless the call is signed with the secret and recent.

    The signature header may hold several, separated by spaces: while a secret is rotated, both sign.
    """
    try:
        message_id, timestamp, signatures = (
            headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"],
        )
        sent = int(timestamp)
    except (KeyError, TypeError, ValueError):
        raise NotGenuine("webhook-id, webhook-timestamp and webhook-signature are needed") from None
    if not message_id or not signatures:
        raise NotGenuine("webhook-id, webhook-timestamp and webhook-signature are needed")
    if abs((time.time() if now is None else now) - sent) > TOLERANCE_SEC:
        raise NotGenuine("the call is too old, or one of the two clocks is wrong")
    key = base64.b64decode(secret[len("whsec_"):] if secret.startswith("whsec_") else secret)
    signed = b".".join([message_id.encode(), timestamp.encode(), body])
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    for signature in signatures.split():
        version, _, value = signature.partition(",")
        # In constant time: the duration of a comparison must not reveal how much was right.
        if version == "v1" and hmac.compare_digest(value.encode(), expected):
            return
    raise NotGenuine("the signature is not of this secret")


def handle(headers, call: object) -> tuple[int, dict, object]:
    """Does the work. Returns the status, headers and the result. Replace it with your work."""
    job = call if isinstance(call, dict) else {}
    payload = job.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    if "throttle_sec" in payload:
        return 429, {"retry-after": str(payload["throttle_sec"])}, {"error": "too much"}
    if "fail" in payload:
        return 422, {}, {"error": payload["fail"]}
    return 200, {}, {"by": "python", "got": call}


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    secret = ""

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            return self.answer(413, {}, {"error": f"more than {MAX_BODY} bytes"})
        body = self.rfile.read(length)
        try:
            verify(self.secret, self.headers, body)
        except NotGenuine as error:
            return self.answer(401, {}, {"error": str(error)})
        try:
            status, headers, result = handle(self.headers, json.loads(body or b"null"))
        except Exception as error:
            status, headers, result = 500, {}, {"error": f"{type(error).__name__}: {error}"}
        self.answer(status, headers, result)

    def answer(self, status: int, headers: dict, result: object) -> None:
        body = json.dumps(result).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description="A push receiver for Tidegate.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    args = parser.parse_args()
    Receiver.secret = os.environ.get("WEBHOOK_SECRET", "")
    if not Receiver.secret:
        print("WEBHOOK_SECRET is not set: it is needed to verify that Tidegate makes the calls", file=sys.stderr)
        return 2
    server = ThreadingHTTPServer((args.host, args.port), Receiver)
    for name in (signal.SIGTERM, signal.SIGINT):
        # In another thread: this one serves.
        signal.signal(name, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"receives at http://{args.host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
