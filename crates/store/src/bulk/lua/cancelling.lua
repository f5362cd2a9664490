-- Ends the jobs of cancelled batches, a bounded number per call. Shared by cancel, which begins, and release_due, which
-- continues.

local cancelling = {}
function cancelling.begin(a)
  -- A batch that is decided or cancelled may have replayed jobs.
  if a.cur or ((a.cancelled or not is_open(a)) and a.un == 0) then return end
  a.cancelled, a.xf, a.cur = true, M.fence, 0
  call('ZADD', K.cancelling, a.seq, a.seq)
  if not a.sealed then seal(a) end
end
-- Inspects up to `budget` jobs; returns the rest of it, how many it ended and how many are running.
function cancelling.jobs(a, budget)
  local ended, running, passed = 0, 0, 0
  while a.cur and budget > 0 and passed < 20000 do
    local seqs = numbers_from(a, a.cur, min(1000, budget))
    if #seqs == 0 then
      a.cur = nil
      call('ZREM', K.cancelling, a.seq)
      break
    end
    load_jobs(seqs)
    for _, seq in ipairs(seqs) do
      a.cur = seq + 1
      passed = passed + 1
      local J = jobs[seq]
      if J then
        budget = budget - 1
        if J.state == RUNNING then running = running + 1
        elseif J.state < COMPLETED and is_cancelled(J, a) then
          detach(J)
          die(J, DIED.CANCELLED, '')
          ended = ended + 1
        end
      end
    end
  end
  return budget, ended, running
end
