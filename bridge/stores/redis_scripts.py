"""The run store's transactions on Redis, in Lua. All keys share one hash tag, so that they are on one node.

A run is a hash (fingerprint, task_id, created_at, plan, whole, entries, and later token, last, ended_at) and a stream
whose ids are `<number>-0`. Numbers are counted by its thread, which is a hash (number, latest: the name of the newest
run) and a sorted set of its runs, oldest first. There is a stream for each run, not for each thread, so that readers
skip nothing. `leases` is a sorted set of run names by expiry. A run's name is its thread's name, `:` and its quoted
id.
"""

from __future__ import annotations

_NOW = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1e6
local function stamp(seconds) return string.format('%.6f', seconds) end
"""

# The queue: a list of run names for each owner with queued runs, and a sorted set of these owners by their turn. Its
# member '' counts the turns. The owner that was served last comes last, new owners right before it.
_ENQUEUE = """
redis.call('{push}', {line}, {run})
redis.call('ZADD', {turns}, 'NX', (redis.call('ZSCORE', {turns}, '') or 0) - 1, 'o' .. {owner})
redis.call('PUBLISH', {channel}, '')
"""

# KEYS: run, thread, runs of the thread, owners of the thread id, line of the owner, threads, turns, open runs
# ARGV: run name, thread name, owner, fingerprint, plan, task id, alone, prefix of run keys, channel of the queue,
#       base scope, limit of the owner, limit of the scope, limit of all (each '' = none)
# Returns {is new, is the first of its thread, fields}. The fields are empty if the run has to be alone and the thread's
# latest run has not ended. The first value is -1, -2 or -3 if the limit of the owner, of the scope or of all is
# reached.
CREATE = (
    _NOW
    + """
if redis.call('EXISTS', KEYS[1]) == 1 then return {0, 0, redis.call('HGETALL', KEYS[1])} end
local first = 1 - redis.call('EXISTS', KEYS[3])
local latest = redis.call('HGET', KEYS[2], 'latest')
if ARGV[7] == '1' and latest and redis.call('EXISTS', ARGV[8] .. latest) == 1
    and not redis.call('HGET', ARGV[8] .. latest, 'ended_at') then return {0, 0, {}} end
local open = {'o:' .. ARGV[3], 's:' .. ARGV[10], 'all'}
for i, name in ipairs(open) do
    local room = tonumber(ARGV[10 + i])
    if room and tonumber(redis.call('HGET', KEYS[8], name) or 0) >= room then return {-i, 0, {}} end
end
for _, name in ipairs(open) do redis.call('HINCRBY', KEYS[8], name, 1) end
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[4], 'plan', ARGV[5], 'task_id', ARGV[6],
    'created_at', stamp(now), 'entries', 0, 'whole', 1)
redis.call('HSETNX', KEYS[2], 'number', 0)
redis.call('HSET', KEYS[2], 'latest', ARGV[1])
redis.call('ZADD', KEYS[3], redis.call('HGET', KEYS[2], 'number'), ARGV[1])
redis.call('SADD', KEYS[4], ARGV[3])
redis.call('ZADD', KEYS[6], stamp(now), ARGV[2])
"""
    + _ENQUEUE.format(push="RPUSH", line="KEYS[5]", turns="KEYS[7]", run="ARGV[1]", owner="ARGV[3]", channel="ARGV[9]")
    + """
return {1, first, redis.call('HGETALL', KEYS[1])}
"""
)

# KEYS: thread, owners of the thread id, threads   ARGV: thread name, owner, make
THREAD = (
    _NOW
    + """
if redis.call('EXISTS', KEYS[1]) == 1 then return 'own' end
if redis.call('EXISTS', KEYS[2]) == 1 then return 'foreign' end
if ARGV[3] == '1' then
    redis.call('HSET', KEYS[1], 'number', 0)
    redis.call('SADD', KEYS[2], ARGV[2])
    redis.call('ZADD', KEYS[3], stamp(now), ARGV[1])
end
return 'none'
"""
)

# KEYS: run, thread, events, leases, ended, threads, open runs
# ARGV: run name, thread name, token, position, end, channel, owner, base scope, body, ...
# Returns {number of the last entry, number of new entries, number of the last entry before them}. The first value is -1
# if the token does not hold the run.
APPEND = (
    _NOW
    + """
local run = redis.call('HMGET', KEYS[1], 'token', 'entries', 'ended_at', 'last')
local position, ending = tonumber(ARGV[4]), ARGV[5] == '1'
if run[1] ~= ARGV[3] or tonumber(run[2]) < position then return {-1, 0, 0} end
local first_new = 9 + tonumber(run[2]) - position
local new = #ARGV - first_new + 1
local before = tonumber(run[4] or 0)
if run[3] then
    if new > 0 or not ending then return {-1, 0, 0} end
    return {before, 0, before}
end
local last = before
for i = first_new, #ARGV do
    last = redis.call('HINCRBY', KEYS[2], 'number', 1)
    redis.call('XADD', KEYS[3], string.format('%.0f-0', last), 'body', ARGV[i])
end
if new > 0 then redis.call('HSET', KEYS[1], 'entries', position + #ARGV - 8, 'last', last) end
if ending then
    redis.call('HSET', KEYS[1], 'ended_at', stamp(now))
    redis.call('ZREM', KEYS[4], ARGV[1])
    redis.call('ZADD', KEYS[5], stamp(now), ARGV[1])
    redis.call('ZADD', KEYS[6], stamp(now), ARGV[2])
    for _, name in ipairs({'o:' .. ARGV[7], 's:' .. ARGV[8], 'all'}) do
        if redis.call('HINCRBY', KEYS[7], name, -1) <= 0 then redis.call('HDEL', KEYS[7], name) end
    end
end
redis.call('PUBLISH', ARGV[6], last)
return {last, math.max(new, 0), before}
"""
)

# KEYS: run, leases   ARGV: run name, token, seconds, grace in seconds
LEASE = (
    _NOW
    + """
local run = redis.call('HMGET', KEYS[1], 'fingerprint', 'ended_at', 'token')
if not run[1] or run[2] then return false end
local expires = redis.call('ZSCORE', KEYS[2], ARGV[1])
if run[3] and run[3] ~= ARGV[2] and expires and tonumber(expires) > now - tonumber(ARGV[4]) then return false end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
redis.call('ZADD', KEYS[2], stamp(now + tonumber(ARGV[3])), ARGV[1])
return redis.call('HGETALL', KEYS[1])
"""
)

# KEYS: turns, leases
# ARGV: token, seconds, prefix of lines, prefix of run keys, number of owners without a slot, these owners,
#       base scopes without a slot
# Returns the name of a queued run, and its fields. Runs that were leased outside the queue, as cancel does, are removed
# from it here.
CLAIM = (
    _NOW
    + """
local full = {}
local owners = tonumber(ARGV[5])
for i = 6, 5 + owners do full['o' .. ARGV[i]] = true end
for i = 6 + owners, #ARGV do full['s' .. ARGV[i]] = true end
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local line = ARGV[3] .. string.sub(member, 2)
    if member ~= '' and not full[member] then
        for _, name in ipairs(redis.call('LRANGE', line, 0, -1)) do
            local run = redis.call('HMGET', ARGV[4] .. name, 'fingerprint', 'ended_at', 'token')
            local scope = string.gsub(string.match(name, '^[^:]*:([^:]*):'), '%%23.*', '')
            if not run[1] or run[2] or run[3] then
                redis.call('LREM', line, 1, name)
            elseif not full['s' .. scope] then
                redis.call('LREM', line, 1, name)
                redis.call('ZADD', KEYS[1], 'XX', redis.call('ZINCRBY', KEYS[1], 1, ''), member)
                redis.call('HSET', ARGV[4] .. name, 'token', ARGV[1])
                redis.call('ZADD', KEYS[2], stamp(now + tonumber(ARGV[2])), name)
                if redis.call('EXISTS', line) == 0 then redis.call('ZREM', KEYS[1], member) end
                return {name, redis.call('HGETALL', ARGV[4] .. name)}
            end
        end
        if redis.call('EXISTS', line) == 0 then redis.call('ZREM', KEYS[1], member) end
    end
end
return false
"""
)

# KEYS: leases, run, ...   ARGV: token, seconds, run name, ...   1 for each that is held, else 0
RENEW = (
    _NOW
    + """
local held = {}
for i = 2, #KEYS do
    local run = redis.call('HMGET', KEYS[i], 'token', 'ended_at')
    held[i - 1] = 0
    if run[1] == ARGV[1] and not run[2] then
        redis.call('ZADD', KEYS[1], stamp(now + tonumber(ARGV[2])), ARGV[i + 1])
        held[i - 1] = 1
    end
end
return held
"""
)

# KEYS: run, leases, line of the owner, turns   ARGV: run name, token, owner, channel of the queue
RELEASE = (
    """
local run = redis.call('HMGET', KEYS[1], 'token', 'ended_at', 'entries')
if run[1] ~= ARGV[2] or run[2] then return 0 end
if run[3] == '0' then
    redis.call('HDEL', KEYS[1], 'token')
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('LREM', KEYS[3], 0, ARGV[1])
"""
    + _ENQUEUE.format(push="LPUSH", line="KEYS[3]", turns="KEYS[4]", run="ARGV[1]", owner="ARGV[3]", channel="ARGV[4]")
    + """
else
    redis.call('ZADD', KEYS[2], 0, ARGV[1])
end
return 1
"""
)

# KEYS: sorted set   ARGV: seconds ago, most   names whose time is at least that long ago
DUE = (
    _NOW
    + """
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', stamp(now - tonumber(ARGV[1])), 'LIMIT', 0, tonumber(ARGV[2]))
"""
)

# KEYS: reader slots of the owner   ARGV: token, limit, seconds, grace in seconds
ENTER = (
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', stamp(now - tonumber(ARGV[4])))
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not known and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], stamp(now + tonumber(ARGV[3])), ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[3]) * 1000) + 3600000)
return 1
"""
)

_DROP_ENTRIES = """
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
"""

# KEYS: run, events, ended   ARGV: run name
FORGET = (
    _DROP_ENTRIES
    + """
redis.call('HSET', KEYS[1], 'whole', 0)
return redis.call('HDEL', KEYS[1], 'plan')
"""
)

# KEYS: run, events, ended, runs of the thread   ARGV: run name
DELETE = (
    """
if not redis.call('HGET', KEYS[1], 'ended_at') then return 0 end
"""
    + _DROP_ENTRIES
    + """
redis.call('ZREM', KEYS[4], ARGV[1])
return redis.call('DEL', KEYS[1])
"""
)

# KEYS: thread, runs of the thread, owners of the thread id, threads, ended
# ARGV: thread name, owner, prefix of run keys, prefix of events keys
FORGET_THREAD = (
    _NOW
    + """
local runs = redis.call('ZRANGE', KEYS[2], 0, -1)
for _, name in ipairs(runs) do
    if not redis.call('HGET', ARGV[3] .. name, 'ended_at') then
        redis.call('ZADD', KEYS[4], stamp(now), ARGV[1])
        return 0
    end
end
for _, name in ipairs(runs) do
    redis.call('DEL', ARGV[3] .. name, ARGV[4] .. name)
    redis.call('ZREM', KEYS[5], name)
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[3], ARGV[2])
redis.call('ZREM', KEYS[4], ARGV[1])
return 1
"""
)
