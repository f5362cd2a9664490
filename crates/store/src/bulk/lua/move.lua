-- Jobs follow their type: if the settings give it another queue, they move there. Jobs that run, are delayed or dead
-- move when they come back; release_due moves those that wait, a bounded number per call.
--
-- M.moving, while jobs may wait in another queue than that of their type: group, the number from which on groups are
-- left; place and at, the list of that group and the entry in it where the last call stopped; moved, whether this pass
-- over the groups has moved a job. M.remapped: the settings of this store have changed before.

local move = {}

-- Begins with the first group: the settings have changed, or parked jobs have come back.
function move.begin() M.moving = { group = 0, place = '', at = 0, moved = false } end

function move.is_astray(J) return M.queues[J.queue].n ~= kind_of(J.kind).queue end

-- Gives a job that is in no list the queue of its type.
function move.home(J)
  if not move.is_astray(J) then return end
  local _, g, flow = home(J)
  J.queue = queue_for(kind_of(J.kind).queue)
  -- The queue follows the batch and the time of creation.
  local blob = J.blob or call('HGET', K.job, J.seq)
  J.blob = string.sub(blob, 1, 11) .. struct.pack('>I2', J.queue) .. string.sub(blob, 14)
  call('HSET', K.job, J.seq, J.blob)
  -- A dead job is none of its flow.
  if J.state == DEAD then return end
  flow_gains(flow_for(g, J.queue, J.v), 1)
  flow_loses(g, flow)
end

-- Ready jobs go back to their flows, the last one first.
function move.recall_ready()
  for index in ipairs(M.queues) do
    local entries = call('LRANGE', names.ready(index), 0, -1)
    load_entries(entries)
    for i = #entries, 1, -1 do
      local J = job_at(entries[i])
      if J and J.sp == IN_READY and J.queue == index and move.is_astray(J) then unready(J) end
    end
  end
end

-- Moves jobs of one list, and returns how many entries it inspected.
function move.of_list(g, k, name, at, most)
  local key = names.flow(int(g.seq), k, name)
  if lists[key] then write_list(lists[key]) end
  local entries = call('LRANGE', key, at, at + most - 1)
  load_entries(entries)
  for _, text in ipairs(entries) do
    local J = job_at(text)
    if J and move.is_astray(J) then
      detach(J)
      set_waiting(g, J)
      move.home(J)
      push_returned(g, g.flows[J.queue .. ':' .. J.v], J)
      M.moving.moved = true
    end
  end
  return #entries
end

-- Moves jobs of one group. Returns how many more entries the call may inspect; 0 if the group may have more.
function move.of_group(g, left)
  local moving, places = M.moving, {}
  for k in pairs(g.flows) do
    for i, name in ipairs({ 'r', 't', 'f' }) do places[#places + 1] = { k .. ':' .. i, k, name } end
  end
  table.sort(places, function(one, other) return one[1] < other[1] end)
  for _, place in ipairs(places) do
    local at = place[1] == moving.place and moving.at or 0
    while place[1] >= moving.place and g.flows[place[2]] do
      local inspected = move.of_list(g, place[2], place[3], at, left)
      left, at = left - inspected, at + inspected
      if left == 0 then
        moving.place, moving.at = place[1], at
        return 0
      end
      if inspected == 0 then break end
    end
  end
  moving.group, moving.place, moving.at = g.seq + 1, '', 0
  return left - 1
end

-- Moves waiting jobs to the queues of their types; returns whether there may be more.
function move.some(left)
  if not M.moving then return false end
  if M.moving.group == 0 then move.recall_ready() end
  while left > 0 do
    local first = call('ZRANGEBYSCORE', K.group_seqs, M.moving.group, '+inf', 'LIMIT', 0, 1)[1]
    if not first then
      -- Workers may have taken jobs from the head of a list meanwhile: another pass follows one that moved some.
      local again = M.moving.moved
      M.moving = nil
      if again then move.begin() end
      return again
    end
    M.moving.group = tonumber(first)
    left = move.of_group(get_group(M.moving.group), left)
  end
  return true
end
