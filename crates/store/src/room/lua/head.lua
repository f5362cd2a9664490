-- One waiting room: how every transition in room/ begins and ends, its limits, its clock and its signals.
--
-- KEYS[1] is <prefix>{<room>}:head; every other key is built from it and shares its hash tag:
--   head      packed: incarnation, settings (c), limits that override the configured ones (o), status, the index of
--             the next ticket (next), indices reserved for the draw (draw, draw_end), wave, voided, how many are
--             granted, inside, early, waiting, event counts (n), the start of the bitmap (base, first), the clock
--             (last, offset)
--   tickets   hash: person -> packed ticket, without the heartbeat
--   queue     zset by index: waiting people who were present at the last inspection
--   positions bitmap: bit (index - base) is set while the ticket with that index waits
--   early     zset by draw: people who joined before the room opened
--   present   zset by present_until: waiting and early people; they are due the grace time later
--   slots     zset by the deadline: people admitted or inside
--   ended     zset by the end: remembered people; they are due the remember time later
--   recent    packed: admissions of the last second: time, count, time, count, …
--   changes   list of packed changes of the limits, the oldest first
-- Deadlines are in three sets, because two of them depend on settings: a change of these moves nothing.
--
-- Every call begins with ARGV[1] time in ms or "", ARGV[2] "1" if it may have run before, ARGV[3] its id, ARGV[4] the
-- channel of the signals, ARGV[5] the name of the room; the rest belongs to the transition. Every reply begins with
-- the signals sent (1 promote, 2 update), or is -1 alone if there is no such room.
--
-- Transitions read, decide in tables, and write at the end (room.save). Numbers stay below 2^53.

-- Set by every call.
local KEYS, ARGV, call
local EARLY, WAITING, GRANTED, INSIDE, ENDED = 1, 2, 3, 4, 5
local COMPLETED, LEFT, LOST, NO_SHOW, EXPIRED = 1, 2, 3, 4, 5
local OPEN, PAUSED, CLOSED = 1, 2, 3
-- Seats that are not counted.
local UNCOUNTED = -1

local room = {}
do
  -- Lua's own libraries are not available while functions are loaded, so they are named in full.
  local PROMOTE, UPDATE = 1, 2

  function room.unknown() return { -1 } end

  -- The room and the time, or nothing. A backward step of the server's clock becomes an offset, so that time
  -- continues from where it was.
  function room.load(keys, args)
    local raw = redis.call('GET', keys[1])
    if not raw then return nil end
    return room.begin(keys, args, cmsgpack.unpack(raw))
  end

  function room.begin(keys, args, h)
    local prefix = string.sub(keys[1], 1, -5)
    local r = {
      h = h, request = args[3], again = args[2] == '1', channel = args[4], name = args[5], promote = false,
      update = false, head = keys[1], tickets = prefix .. 'tickets', queue = prefix .. 'queue', positions = prefix .. 'positions',
      early = prefix .. 'early', present = prefix .. 'present', slots = prefix .. 'slots', ended = prefix .. 'ended',
      recent = prefix .. 'recent', changes = prefix .. 'changes',
      -- Tickets that were read; their state at that time; those that changed, in order, and whose record did.
      t = {}, was = {}, was_index = {}, changed = {}, marked = {}, record = {}, absent = {},
    }
    local wall = tonumber(args[1])
    if not wall then
      local t = redis.call('TIME')
      wall = t[1] * 1000 + math.floor(t[2] / 1000)
    end
    if wall + h.offset < h.last then
      h.offset, r.stepped = h.last - wall, true
    else
      h.last = wall + h.offset
    end
    r.now = h.last
    return r
  end

  -- For frequent calls that mostly change nothing: a backward step must be persisted all the same, or time would
  -- stand still until the clock has caught up.
  function room.keep_clock(r)
    if r.stepped then redis.call('SET', r.head, cmsgpack.pack(r.h)) end
  end

  -- The limits in effect.
  function room.capacity(h)
    local c, o = h.c, h.o
    return o.seats or c.seats, o.inside or c.inside, o.rate or c.rate
  end

  -- The limit other than the rate that keeps the next person out: nothing, 'inside' or 'seats'.
  function room.full(h)
    local seats, inside = room.capacity(h)
    local slots = h.granted + h.inside
    if slots >= inside then return 'inside' end
    if seats ~= UNCOUNTED and h.n.completed + slots >= seats then return 'seats' end
  end

  function room.sold_out(h)
    local seats = room.capacity(h)
    return seats ~= UNCOUNTED and h.n.completed >= seats
  end

  function room.is_early(r)
    local opens = r.h.c.opens
    return opens and opens > r.now
  end

  -- Signals that somebody may be admitted now, if there is room.
  function room.notify_promote(r)
    r.promote = r.promote or r.h.status == OPEN and not room.full(r.h)
  end

  -- Signals that the room itself has changed.
  function room.notify_changed(r)
    r.update = true
    room.notify_promote(r)
  end

  -- The newest stream of a person superseded another one, which may be open in another process.
  function room.notify_taken_over(r, person, t)
    r.taken_over = r.taken_over or { r.name }
    local n = #r.taken_over
    r.taken_over[n + 1], r.taken_over[n + 2] = person, string.format('%.0f', t.stream)
  end

  -- Once the room has opened, reserves indices for the early tickets before everybody who joins from now on.
  function room.reserve_indices(r)
    local h = r.h
    if h.early > 0 and h.draw == h.draw_end and not room.is_early(r) then
      h.draw = h.next
      h.next = h.next + h.early
      h.draw_end = h.next
    end
  end

  -- Early tickets not drawn yet, as far as indices are reserved for them. They are ahead of every index from draw_end
  -- on.
  function room.undrawn(h) return math.min(h.early, h.draw_end - h.draw) end

  -- Sends the signals and puts them before the reply.
  local function notify(r, answer)
    local bits = (r.promote and PROMOTE or 0) + (r.update and UPDATE or 0)
    if bits > 0 then redis.call('PUBLISH', r.channel, bits .. ' ' .. r.name) end
    if r.taken_over then redis.call('PUBLISH', r.channel .. ':streams', cjson.encode(r.taken_over)) end
    table.insert(answer, 1, bits)
    return answer
  end

  -- Writes everything that changed, and signals.
  function room.save(r, answer)
    room.write(r)
    return notify(r, answer)
  end

  function room.write(r)
    room.write_tickets(r)
    redis.call('SET', r.head, cmsgpack.pack(r.h))
  end
end
