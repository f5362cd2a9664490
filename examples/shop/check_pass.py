"""Verifies a pass of Tidegate offline: check_pass.py <JWK Set: file or URL> <room> <pass, or - for stdin>

Prints the claims and exits with 0, or the reason and exits with 1. Python 3.9+. The package `cryptography` verifies the
signature if it is installed, otherwise the program `openssl` (1.1.1 or later).
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request


class Refused(Exception):
    pass


def decode(part):
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise Refused("this is not a pass")
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != part:
        raise Refused("this is not a pass")
    return data


def obj(part):
    try:
        value = json.loads(decode(part))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refused("this is not a pass")
    return value


def is_signed(public, signed, signature):
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return is_signed_by_openssl(public, signed, signature)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
        return True
    except InvalidSignature:
        return False


def is_signed_by_openssl(public, signed, signature):
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        # The prefix of an Ed25519 key in DER (RFC 8410).
        der = bytes.fromhex("302a300506032b6570032100") + public
        for name, data in {"key": der, "signed": signed, "signature": signature}.items():
            paths[name] = os.path.join(folder, name)
            with open(paths[name], "wb") as file:
                file.write(data)
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", paths["key"], "-rawin"]
        command += ["-in", paths["signed"], "-sigfile", paths["signature"]]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def check_pass(token, jwks, room, issuer="tidegate", now=None):
    """The claims of a pass; raises Refused with the reason if the pass is invalid."""
    now = time.time() if now is None else now
    parts = token.split(".")
    if len(token) > 4096 or len(parts) != 3:
        raise Refused("this is not a pass")
    header = obj(parts[0])
    # The verifier decides the algorithm, never the token.
    if header.get("alg") != "EdDSA" or "crit" in header:
        raise Refused("wrong algorithm")
    fits = {"kty": "OKP", "crv": "Ed25519", "kid": header.get("kid")}
    key = next((key for key in jwks["keys"] if fits.items() <= key.items()), None)
    if key is None:
        raise Refused("unknown key: fetch the JWK Set again, at most once a minute")
    if not is_signed(decode(key["x"]), f"{parts[0]}.{parts[1]}".encode(), decode(parts[2])):
        raise Refused("bad signature")
    claims = obj(parts[1])
    if claims.get("iss") != issuer:
        raise Refused("issued by another service")
    if claims.get("aud") != room:
        raise Refused("for another room")
    if not claims["nbf"] <= now:
        raise Refused("not valid yet")
    if not now < claims["exp"]:
        raise Refused("expired")
    return claims


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, room, token = sys.argv[1:]
    token = sys.stdin.read().strip() if token == "-" else token
    if source.startswith(("http://", "https://")):
        with urllib.request.urlopen(source, timeout=5) as answer:
            jwks = json.load(answer)
    else:
        with open(source, encoding="utf-8") as file:
            jwks = json.load(file)
    try:
        print(json.dumps(check_pass(token, jwks, room), separators=(",", ":"), ensure_ascii=False))
    except Refused as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
