-- Rates of any size, exact in every aligned window: the same arithmetic as `limits::rate` of the core. Shared, because
-- shards, grants and changes of limits compute the same windows.

local rate = {}
-- Units per window: whole ones, and the rest in ten-millionths.
function rate.parts(rps, length)
  local parts = rps * length * 10000
  local near = math.floor(parts + 0.5)
  if math.abs(parts - near) > parts * 1e-9 then near = math.floor(parts) end
  parts = math.max(1, near)
  local whole = math.floor(parts / 10000000)
  return whole, parts - whole * 10000000
end
-- Units that the window of this number allows.
function rate.allowed(rps, length, window)
  local whole, rest = rate.parts(rps, length)
  if rest == 0 then return whole end
  local at = window % 10000000
  return whole + math.floor(rest * (at + 1) / 10000000) - math.floor(rest * at / 10000000)
end
-- Units that all windows from this one on and before `finish` allow.
function rate.between(rps, length, from, finish)
  if finish <= from then return 0 end
  local whole, rest = rate.parts(rps, length)
  -- floor(rest * k / 10000000), with k in two parts so that every product stays exact.
  local function carried(k)
    local at = k % 10000000
    return rest * (k - at) / 10000000 + math.floor(rest * at / 10000000)
  end
  return whole * (finish - from) + carried(finish) - carried(from)
end
-- The most that any window allows.
function rate.most(rps, length)
  local whole, rest = rate.parts(rps, length)
  return rest > 0 and whole + 1 or whole
end
-- The first window from this one on that allows anything.
function rate.next(rps, length, window)
  local whole, rest = rate.parts(rps, length)
  if whole > 0 or rest == 0 then return window end
  local at = window % 10000000
  local passed = math.floor(rest * at / 10000000) + 1
  return window + math.max(0, math.ceil(passed * 10000000 / rest) - 1 - at)
end
