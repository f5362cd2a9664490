// Verifies a pass of Tidegate offline: node check-pass.mjs <JWK Set: file or URL> <room> <pass, or - for stdin>
// Prints the claims and exits with 0, or the reason and exits with 1. Node 18+, no dependencies.
import { createPublicKey, verify } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";

const decode = (part) => {
  const bytes = Buffer.from(part, "base64url");
  if (bytes.toString("base64url") !== part) throw new Error("this is not a pass");
  return bytes;
};

const json = (part) => {
  let value;
  try {
    value = JSON.parse(decode(part).toString());
  } catch {}
  if (value === null || typeof value !== "object") throw new Error("this is not a pass");
  return value;
};

/** The claims of a pass; throws an error with the reason if the pass is invalid. `now` is in seconds. */
export function checkPass(pass, jwks, room, issuer = "tidegate", now = Date.now() / 1000) {
  const parts = pass.split(".");
  if (pass.length > 4096 || parts.length !== 3) throw new Error("this is not a pass");
  const header = json(parts[0]);
  // The verifier decides the algorithm, never the token.
  if (header.alg !== "EdDSA" || header.crit !== undefined) throw new Error("wrong algorithm");
  const jwk = jwks.keys.find((key) => key.kid === header.kid && key.kty === "OKP" && key.crv === "Ed25519");
  if (!jwk) throw new Error("unknown key: fetch the JWK Set again, at most once a minute");
  const key = createPublicKey({ key: jwk, format: "jwk" });
  if (!verify(null, Buffer.from(`${parts[0]}.${parts[1]}`), key, decode(parts[2]))) throw new Error("bad signature");
  const claims = json(parts[1]);
  if (claims.iss !== issuer) throw new Error("issued by another service");
  if (claims.aud !== room) throw new Error("for another room");
  if (!(claims.nbf <= now)) throw new Error("not valid yet");
  if (!(now < claims.exp)) throw new Error("expired");
  return claims;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  try {
    const [from, room, given] = process.argv.slice(2);
    if (given === undefined) throw new Error("usage: check-pass.mjs <JWK Set: file or URL> <room> <pass, or ->");
    const pass = given === "-" ? readFileSync(0, "utf8").trim() : given;
    const jwks = /^https?:/.test(from) ? await (await fetch(from)).json() : JSON.parse(readFileSync(from, "utf8"));
    console.log(JSON.stringify(checkPass(pass, jwks, room)));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
