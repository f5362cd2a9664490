// A push receiver for Tidegate in TypeScript, with Node's standard library only.
//
// It accepts calls of a push target or of a completion callback, and verifies that Tidegate made them: signed as Standard
// Webhooks specifies, and not older than five minutes.
//
//     WEBHOOK_SECRET=whsec_... node --experimental-strip-types receiver.ts --port 8080
//
// 2xx: completed, and the body is the result. 429 or 503 with Retry-After: throttled. 410: send nothing more. Other
// 4xx: failed. 5xx: retried. Delivery is at least once; `webhook-id` stays the same when a call is retried.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const TOLERANCE_SEC = 5 * 60;
const MAX_BODY = 16 * 1024 * 1024;

/** A call that Tidegate did not make, or too long ago. */
export class NotGenuine extends Error {}

/**
 * Throws unless the call is signed with the secret and recent. The signature header may hold several, separated by
 * spaces: while a secret is rotated, both sign.
 */
export function verify(
  secret: string,
  headers: IncomingHttpHeaders,
  body: Buffer,
  nowSec: number = Date.now() / 1000,
): void {
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => headers[name]);
  if (typeof id !== "string" || typeof timestamp !== "string" || typeof signatures !== "string" || !/^\d+$/.test(timestamp)) {
    throw new NotGenuine("webhook-id, webhook-timestamp and webhook-signature are needed");
  }
  if (Math.abs(nowSec - Number(timestamp)) > TOLERANCE_SEC) {
    throw new NotGenuine("the call is too old, or one of the two clocks is wrong");
  }
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  for (const signature of signatures.split(" ")) {
    if (!signature.startsWith("v1,")) continue;
    const given = Buffer.from(signature.slice(3), "base64");
    // In constant time: the duration of a comparison must not reveal how much was right.
    if (given.length === expected.length && timingSafeEqual(given, expected)) return;
  }
  throw new NotGenuine("the signature is not of this secret");
}

interface Reply {
  status: number;
  headers?: Record<string, string>;
  result: unknown;
}

/** Does the work. Replace it with yours. */
async function handle(call: unknown): Promise<Reply> {
  const payload = (call as { payload?: unknown } | null)?.payload;
  const orders = (typeof payload === "object" && payload !== null ? payload : {}) as {
    throttle_sec?: number;
    fail?: string;
  };
  if (orders.throttle_sec !== undefined) {
    return { status: 429, headers: { "retry-after": String(orders.throttle_sec) }, result: { error: "too much" } };
  }
  if (orders.fail !== undefined) return { status: 422, result: { error: orders.fail } };
  return { status: 200, result: { by: "typescript", got: call } };
}

async function receive(secret: string, request: IncomingMessage): Promise<Reply> {
  if (request.method !== "POST") return { status: 405, result: { error: "only POST is accepted" } };
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > MAX_BODY) return { status: 413, result: { error: `more than ${MAX_BODY} bytes` } };
    pieces.push(piece);
  }
  const body = Buffer.concat(pieces);
  try {
    verify(secret, request.headers, body);
    return await handle(body.length > 0 ? JSON.parse(body.toString("utf8")) : null);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { status: error instanceof NotGenuine ? 401 : 500, result: { error: text } };
  }
}

function main(): void {
  const { values } = parseArgs({
    options: { host: { type: "string", default: "127.0.0.1" }, port: { type: "string", default: "8080" } },
  });
  const secret = process.env.WEBHOOK_SECRET ?? "";
  if (secret === "") {
    console.error("WEBHOOK_SECRET is not set: it is needed to verify that Tidegate makes the calls");
    process.exit(2);
  }
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const { status, headers, result } = await receive(secret, request);
    const body = JSON.stringify(result);
    response.writeHead(status, {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      ...headers,
    });
    response.end(body);
  });
  server.listen(Number(values.port), values.host, () => {
    const { port } = server.address() as AddressInfo;
    console.log(`receives at http://${values.host}:${port}/`);
  });
  const stop = () => {
    server.close(() => process.exit(0));
    server.closeIdleConnections();
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
}

// Only when it is run, not when `verify` is imported.
if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) main();
