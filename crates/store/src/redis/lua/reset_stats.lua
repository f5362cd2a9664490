-- reset_stats: clears a group's congestion statistics. group.
local g = find_group(next_arg())
if not g then return { nothing(), 'no group' } end
clear_stats(g)
return { flush(), 'ok' }
