-- The tickets of a room: read, changed and written together, with every set sorted by them.
--
-- A ticket is a table: state, index, joined, stream, and
--   EARLY    draw, present
--   WAITING  present
--   GRANTED  wave, at, till, request (the call that reissued the pass, or "")
--   INSIDE   wave, till, session (or ""), request (the call that redeemed it, if it named no session, or "")
--   ENDED    how, at
-- with no state once it is forgotten. `present` is stored as the score of the set of that name.
do
  local COUNTED = { 'early', 'waiting', 'granted', 'inside' }
  local SORTED = { 'present', 'present', 'slots', 'slots', 'ended' }
  local WORD = 64
  -- Limit: arguments of one command; Lua can pass some thousands at most.
  local MOST_ARGS = 4000
  -- Unused indices at the start before their bits are cut off.
  local CUT = 65536

  local function packed(t)
    local state = t.state
    if state == EARLY then return cmsgpack.pack(state, t.index, t.joined, t.stream, t.draw) end
    if state == WAITING then return cmsgpack.pack(state, t.index, t.joined, t.stream) end
    if state == GRANTED then
      return cmsgpack.pack(state, t.index, t.joined, t.stream, t.wave, t.at, t.till, t.request)
    end
    if state == INSIDE then
      return cmsgpack.pack(state, t.index, t.joined, t.stream, t.wave, t.till, t.session, t.request)
    end
    return cmsgpack.pack(state, t.index, t.joined, t.stream, t.how, t.at)
  end

  local function unpacked(raw)
    local state, index, joined, stream, a, b, c, d = cmsgpack.unpack(raw)
    local t = { state = state, index = index, joined = joined, stream = stream }
    if state == EARLY then t.draw = a
    elseif state == GRANTED then t.wave, t.at, t.till, t.request = a, b, c, d
    elseif state == INSIDE then t.wave, t.till, t.session, t.request = a, b, c, d
    elseif state == ENDED then t.how, t.at = a, b
    end
    return t
  end

  -- A ticket in the format of replies. `ahead` is filled in by room.count_ahead, or here if it is known.
  function room.view(r, t)
    local state, view = t.state, { t.state, t.index, t.joined, t.stream, t.ahead or 0, r.h.waiting }
    if state == EARLY then view[7], view[8] = t.draw, t.present
    elseif state == WAITING then view[7] = t.present
    elseif state == GRANTED then view[7], view[8], view[9] = t.wave, t.at, t.till
    elseif state == INSIDE then view[7], view[8], view[9] = t.wave, t.till, t.session
    else view[7], view[8] = t.how, t.at
    end
    return view
  end

  -- Reads the tickets of these people, at most some thousands, each once.
  function room.read(r, people)
    local new, alive = {}, {}
    for _, person in ipairs(people) do
      if r.t[person] == nil then
        r.t[person] = false
        new[#new + 1] = person
      end
    end
    if #new == 0 then return end
    local raws = redis.call('HMGET', r.tickets, unpack(new))
    for i, person in ipairs(new) do
      if raws[i] then
        local t = unpacked(raws[i])
        r.t[person], r.was[person], r.was_index[person] = t, t.state, t.index
        if t.state <= WAITING then alive[#alive + 1] = person end
      end
    end
    if #alive == 0 then return end
    local scores = redis.call('ZMSCORE', r.present, unpack(alive))
    for i, person in ipairs(alive) do
      local t, present = r.t[person], tonumber(scores[i])
      t.present = present
      -- A person who was present all the time is already in the sorted set.
      r.absent[person] = present <= r.now
    end
  end

  function room.read_one(r, person)
    room.read(r, { person })
    return r.t[person]
  end

  -- How many wait ahead of each of these views, whose tickets waited when the call began: one pass over the bitmap.
  -- Undrawn tickets count as of now, unless the view says how many there were.
  function room.count_ahead(r, views)
    table.sort(views, function(a, b) return a[2] < b[2] end)
    local base, from, ahead = r.h.base, r.h.first, 0
    for _, view in ipairs(views) do
      local index = view[2]
      if index > from then
        ahead = ahead + redis.call('BITCOUNT', r.positions, from - base, index - 1 - base, 'BIT')
        from = index
      end
      view[5] = ahead + (index >= r.h.draw_end and (view.undrawn or room.undrawn(r.h)) or 0)
    end
  end

  local function mark(r, person)
    if not r.marked[person] then
      r.marked[person] = true
      r.changed[#r.changed + 1] = person
    end
  end

  -- A heartbeat, or the end of one.
  function room.set_present(r, person, t, present)
    t.present = present
    mark(r, person)
  end

  -- Its record has changed, but not its state.
  function room.changes(r, person)
    r.record[person] = true
    mark(r, person)
  end

  -- Moves a ticket to another state; to none to forget it.
  function room.become(r, person, t, state)
    local h, from, to = r.h, COUNTED[t.state], COUNTED[state]
    if from then h[from] = h[from] - 1 end
    if to then h[to] = h[to] + 1 end
    t.state, r.t[person] = state, t
    room.changes(r, person)
  end

  -- Keeps a ticket alive. A person who returns may be the first that can be admitted.
  function room.renew(r, person, t)
    if t.state > WAITING then return end
    if t.present <= r.now then room.notify_promote(r) end
    room.set_present(r, person, t, r.now + r.h.c.presence)
  end

  -- Ends a ticket. Frees its slot if it held one.
  function room.finish(r, person, t, how)
    local held = t.state == GRANTED or t.state == INSIDE
    t.how, t.at = how, r.now
    room.become(r, person, t, ENDED)
    if held then room.notify_changed(r) end
  end

  local function many(command, key, list)
    for from = 1, #list, MOST_ARGS do
      redis.call(command, key, unpack(list, from, math.min(#list, from + MOST_ARGS - 1)))
    end
  end
  room.many = many

  local function word_of(index) return index - index % WORD end

  -- Sets and clears bits. Reads begin with the first word that has somebody, and bits before it are cut off from
  -- time to time, so neither time nor memory grows with the history.
  local function write_positions(r, taken, freed, waited)
    local h = r.h
    -- No index below this one is assigned any more.
    local low = h.draw < h.draw_end and h.draw or h.next
    if h.waiting == 0 then
      if waited > 0 then redis.call('DEL', r.positions) end
      h.base, h.first = word_of(low), word_of(low)
      return
    end
    if waited == 0 then
      -- Nobody waited, so there are no bits: they begin with the first index.
      local first = math.huge
      for _, index in ipairs(taken) do first = math.min(first, index) end
      h.base, h.first = word_of(math.min(first, low)), word_of(first)
    end
    local bits, head_freed = {}, false
    local function put(index, bit)
      local n = #bits
      bits[n + 1], bits[n + 2], bits[n + 3], bits[n + 4] = 'SET', 'u1', index - h.base, bit
    end
    for _, index in ipairs(taken) do
      put(index, 1)
      if index < h.first then h.first = word_of(index) end
    end
    for _, index in ipairs(freed) do
      put(index, 0)
      head_freed = head_freed or index < h.first + WORD
    end
    many('BITFIELD', r.positions, bits)
    if not head_freed then return end
    h.first = word_of(h.base + redis.call('BITPOS', r.positions, 1, (h.first - h.base) / 8))
    local keep = math.min(h.first, word_of(low))
    if keep - h.base >= CUT and keep - h.base >= h.next - keep then
      redis.call('SET', r.positions, redis.call('GETRANGE', r.positions, (keep - h.base) / 8, -1))
      h.base = keep
    end
  end

  -- Writes the changed tickets; the head is written after it.
  function room.write_tickets(r)
    if #r.changed == 0 then return end
    local put, drop, taken, freed = {}, {}, {}, {}
    local add = { present = {}, slots = {}, ended = {}, early = {}, queue = {} }
    local rem = { present = {}, slots = {}, ended = {}, early = {}, queue = {} }
    local function adds(set, score, person)
      local list = add[set]
      local n = #list
      list[n + 1], list[n + 2] = score, person
    end
    local function rems(set, person) rem[set][#rem[set] + 1] = person end
    for _, person in ipairs(r.changed) do
      local t, was = r.t[person], r.was[person]
      local state = t.state
      if r.record[person] then
        if state then
          local n = #put
          put[n + 1], put[n + 2] = person, packed(t)
        else
          drop[#drop + 1] = person
        end
      end
      local from, to = SORTED[was], SORTED[state]
      if from and from ~= to then rems(from, person) end
      if to then adds(to, t.state <= WAITING and t.present or t.state == ENDED and t.at or t.till, person) end
      if was == EARLY and state ~= EARLY then rems('early', person) end
      if state == EARLY and was ~= EARLY then adds('early', t.draw, person) end
      if state == WAITING then
        if was ~= WAITING then taken[#taken + 1] = t.index end
        if t.present <= r.now then rems('queue', person)
        elseif was ~= WAITING or r.absent[person] then adds('queue', t.index, person) end
      elseif was == WAITING then
        freed[#freed + 1] = r.was_index[person]
        rems('queue', person)
      end
    end
    many('HSET', r.tickets, put)
    many('HDEL', r.tickets, drop)
    for set, list in pairs(rem) do many('ZREM', r[set], list) end
    for set, list in pairs(add) do many('ZADD', r[set], list) end
    if #taken > 0 or #freed > 0 then write_positions(r, taken, freed, r.h.waiting - #taken + #freed) end
    -- From here on this is their previous state.
    for _, person in ipairs(r.changed) do
      local t = r.t[person]
      r.was[person], r.was_index[person] = t.state, t.index
      if t.state and t.state <= WAITING then r.absent[person] = t.present <= r.now end
      if not t.state then r.t[person] = false end
    end
    r.changed, r.marked, r.record = {}, {}, {}
  end
end
