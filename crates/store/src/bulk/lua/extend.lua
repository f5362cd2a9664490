-- bulk extend: extends the leases of running jobs. Atomic, so that an expired lease that was handed on is never
-- extended.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: duration from now (ms), then for each lease: job, fence, progress as packed (percent 1, text) or ""
-- RETURNS  facts, then for each: until when (ms), or -1 if the lease is lost
-- BOUND  the caller's leases
local till = now + next_number()
local seqs, fences, progress, out = {}, {}, {}, {}
while arg < #ARGV do
  seqs[#seqs + 1] = next_number()
  fences[#fences + 1] = next_number()
  progress[#progress + 1] = next_arg()
end
load_jobs(seqs)
for i, seq in ipairs(seqs) do
  local J = jobs[seq]
  if J and J.state == RUNNING and J.fence == fences[i] then
    J.at, J.dirty = till, true
    if progress[i] ~= '' then J.progress = progress[i] end
    zput(K.inflight, padded(seq), till)
    out[i] = till
  else
    out[i] = -1
  end
end
return { flush(), out }
