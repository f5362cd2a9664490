// SHA-256 of many texts with the same prefix, which is hashed only once.
//
// The browser's own implementation is missing on pages without TLS, and each call to it takes longer than the hash itself.

const START = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
// prettier-ignore
const ROUNDS = new Int32Array([
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
]);
const BLOCK = 64;

const schedule = new Int32Array(64);

/** The compression function: mixes one block of `bytes` into the state. */
function compress(state, bytes, from) {
  const w = schedule;
  for (let i = 0; i < 16; i += 1) {
    const at = from + 4 * i;
    w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  }
  for (let i = 16; i < 64; i += 1) {
    const x = w[i - 15];
    const y = w[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const one = (h + s1 + ((e & f) ^ (~e & g)) + ROUNDS[i] + w[i]) | 0;
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + one) | 0;
    d = c;
    c = b;
    b = a;
    a = (one + two) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

/**
 * Returns a function that hashes `prefix` followed by a short ASCII text. It returns eight 32-bit words, which its next call
 * overwrites.
 */
export function prefixHasher(prefix) {
  const bytes = new TextEncoder().encode(prefix);
  const whole = bytes.length - (bytes.length % BLOCK);
  const prefixState = new Int32Array(START);
  for (let at = 0; at < whole; at += BLOCK) compress(prefixState, bytes, at);
  const rest = bytes.length - whole;
  // Space for the rest of the prefix, the suffix, the padding and the length.
  const tail = new Uint8Array(3 * BLOCK);
  tail.set(bytes.subarray(whole));
  const lengths = new DataView(tail.buffer);
  const state = new Int32Array(8);
  return (suffix) => {
    const end = rest + suffix.length;
    const size = Math.ceil((end + 9) / BLOCK) * BLOCK;
    for (let i = 0; i < suffix.length; i += 1) tail[rest + i] = suffix.charCodeAt(i);
    tail.fill(0, end, size);
    tail[end] = 0x80;
    lengths.setUint32(size - 4, 8 * (whole + end));
    state.set(prefixState);
    for (let at = 0; at < size; at += BLOCK) compress(state, tail, at);
    return state;
  };
}
