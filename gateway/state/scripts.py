"""What the Redis store does in one step on the server, in Lua.

An entry is a hash: `v` its version, `d` its value, `o` its owner. An owner's account is a sorted set of its entries by
the time they end, and a hash of their sizes whose field "" is the sum. Entries that end by themselves are taken off
the account by the next write. A server that is short of memory may drop either half of an account alone: the other half
then starts anew.
"""

from __future__ import annotations

_ACCOUNT = """
local function forget(ages, sizes, key)
  local size = redis.call('HGET', sizes, key)
  if size then
    redis.call('HDEL', sizes, key)
    redis.call('HINCRBY', sizes, '', -size)
  end
  redis.call('ZREM', ages, key)
end
local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
local function account(prefix, owner)
  return prefix .. 'ages:' .. owner, prefix .. 'sizes:' .. owner
end
"""

# KEYS: entry. ARGV: prefix, value, ttl in ms, expected version or "", owner, the owner's limit in bytes.
PUT = (
    _ACCOUNT
    + """
local entry, prefix, value, ttl, owner = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
local old = redis.call('HMGET', entry, 'v', 'o')
if ARGV[4] ~= '' and ARGV[4] ~= (old[1] or '0') then return 0 end
if old[2] and old[2] ~= '' then
  local ages, sizes = account(prefix, old[2])
  forget(ages, sizes, entry)
end
local version = redis.call('INCR', prefix .. 'versions')
redis.call('HSET', entry, 'v', version, 'd', value, 'o', owner)
redis.call('PEXPIRE', entry, ttl)
if owner == '' then return version end
local ages, sizes = account(prefix, owner)
local now = now_ms()
for _, key in ipairs(redis.call('ZRANGEBYSCORE', ages, '-inf', now)) do forget(ages, sizes, key) end
redis.call('ZADD', ages, now + ttl, entry)
redis.call('HSET', sizes, entry, #value)
local total = redis.call('HINCRBY', sizes, '', #value)
while total > tonumber(ARGV[6]) do
  local oldest = redis.call('ZRANGE', ages, 0, 1)
  oldest = oldest[1] ~= entry and oldest[1] or oldest[2]
  if not oldest then
    redis.call('DEL', sizes)
    redis.call('HSET', sizes, entry, #value, '', #value)
    break
  end
  redis.call('DEL', oldest)
  forget(ages, sizes, oldest)
  total = tonumber(redis.call('HGET', sizes, '') or 0)
end
for _, key in ipairs({ages, sizes}) do
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end
return version
"""
)

# KEYS: entry. ARGV: prefix.
DELETE = (
    _ACCOUNT
    + """
local owner = redis.call('HGET', KEYS[1], 'o')
if owner and owner ~= '' then
  local ages, sizes = account(ARGV[1], owner)
  forget(ages, sizes, KEYS[1])
end
return redis.call('DEL', KEYS[1])
"""
)

# KEYS: entries. ARGV: prefix, ttl in ms.
TOUCH = (
    _ACCOUNT
    + """
local until_ms = now_ms() + tonumber(ARGV[2])
for _, entry in ipairs(KEYS) do
  local owner = redis.call('HGET', entry, 'o')
  if owner then
    redis.call('PEXPIRE', entry, ARGV[2])
    if owner ~= '' then
      local ages, sizes = account(ARGV[1], owner)
      redis.call('ZADD', ages, 'XX', until_ms, entry)
      for _, key in ipairs({ages, sizes}) do
        if redis.call('PTTL', key) < tonumber(ARGV[2]) then redis.call('PEXPIRE', key, ARGV[2]) end
      end
    end
  end
end
"""
)

# KEYS: counter. ARGV: amount, ttl in ms.
ADD = """
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return count
"""
