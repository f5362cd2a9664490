-- bulk jobs: a page of the jobs of the shard, batch by batch, and within a batch in the order of arrival; read-only. One
-- call, so that a job and its batch match.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: batch and last inspected job of it, or "" twice, maximum jobs, maximum inspected, then the
--   filter, each "" for all: group, batch, queue, type, state, first second and end (s) of acceptance
-- RETURNS  for each: group, job; then batch and last inspected job to continue from, or -1 twice at the end
-- BOUND  the jobs and batches inspected, or about a megabyte of jobs
local batch_seq, job_seq, most, left = next_number() or 0, next_number() or 0, next_number(), next_number()
local group_id, batch_id, queue, kind = next_arg(), next_arg(), next_arg(), next_arg()
local state, created_from, created_until = next_number(), next_number(), next_number()
local of_group = group_id ~= '' and find_group(group_id)
local only = of_group and batch_id ~= '' and find_batch(of_group, batch_id)
if (group_id ~= '' and not of_group) or (of_group and batch_id ~= '' and not only) then return { {}, -1, -1 } end

local function next_batch(from)
  if only then return only.seq >= from and only or nil end
  local key = of_group and names.batches(int(of_group.seq)) or K.batch_seqs
  local got = call('ZRANGEBYSCORE', key, int(from), '+inf', 'LIMIT', 0, 1)[1]
  return got and get_batch(tonumber(got))
end
local function matches(J)
  if state and J.state ~= state then return false end
  if kind ~= '' and J.kind ~= kind then return false end
  if queue ~= '' and M.queues[J.queue].n ~= queue then return false end
  local _, created = unpack_blob(BLOB, J.blob)
  local second = floor(created / 1000)
  return not (created_from and second < created_from) and not (created_until and second >= created_until)
end

local out, bytes = {}, 0
local function full() return left <= 0 or #out >= most or bytes > 1048576 end
local a = next_batch(batch_seq)
while a do
  if a.seq ~= batch_seq then batch_seq, job_seq = a.seq, 0 end
  left = left - 1
  local idle = job_seq == 0 and state and state < COMPLETED and a.un == 0
  while not idle do
    local seqs = numbers_from(a, job_seq + 1, 50)
    if #seqs == 0 then break end
    load_jobs(seqs)
    runs.load(seqs)
    for _, seq in ipairs(seqs) do
      if full() then return { out, batch_seq, job_seq } end
      job_seq, left = seq, left - 1
      local J = jobs[seq]
      if J then
        bytes = bytes + #J.blob + #J.text + #runs.of(J)
        if matches(J) then out[#out + 1] = { get_group(a.g).id, view_of(J, a) } end
      end
    end
  end
  batch_seq, job_seq = batch_seq + 1, 0
  a = next_batch(batch_seq)
  if a and full() then return { out, batch_seq, 0 } end
end
return { out, -1, -1 }
