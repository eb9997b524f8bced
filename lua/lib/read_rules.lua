-- read_rules: the limits of a queue, from the text in its key; an error where it cannot be read, so that nothing is taken that should
-- have waited. Writes nothing.
--
-- RETURNS a list of rules, in each its fields of docs/wire-format.md, and: kind and path, the two parts of its key; interval, the
-- milliseconds between two starts (0: any number at once); is_strict, whether the tasks of a key run one after another in their order;
-- is_fair, whether its keys take turns; is_gate, whether it holds for all tasks of the queue, and none is parked for it.
local function read_rules(text)
  local is_read, body = pcall(cjson.decode, text)
  local rules = is_read and type(body) == 'table' and body.rules
  local function hold(is_so)
    if not is_so then
      error('LIMITS the limits of the queue cannot be read, so nothing is taken; queuectl limit off removes them', 0)
    end
  end
  local function is_number(number, least)
    return type(number) == 'number' and number >= (least or 1) and number < 2 ^ 53
  end
  local function is_breaker(breaker)
    return type(breaker) == 'table' and is_number(breaker.percent) and is_number(breaker.of) and is_number(breaker.within)
      and is_number(breaker.rest) and is_number(breaker.most)
  end
  hold(type(rules) == 'table')
  local count = 0
  for _ in pairs(rules) do
    count = count + 1
  end
  hold(count == #rules)
  for n = 1, count do
    local rule = rules[n]
    hold(type(rule) == 'table' and type(rule.name) == 'string' and type(rule.key) == 'string'
      and (rule.types == nil or type(rule.types) == 'table')
      and (rule.concurrency == nil or is_number(rule.concurrency))
      and (rule.burst == nil or is_number(rule.burst))
      and (rule.fallback == nil or is_number(rule.fallback))
      and (rule.rate == nil and rule.per == nil or is_number(rule.rate) and is_number(rule.per))
      and (rule.order == nil or rule.order == 'strict')
      and (rule.adapt == nil or is_number(rule.adapt, 2) and rule.rate)
      and (rule.fair == nil or rule.fair == true and rule.order == nil)
      and (rule.breaker == nil or is_breaker(rule.breaker)))
    rule.kind, rule.path = string.match(rule.key, '^(%l+):?(.*)$')
    hold(rule.kind == 'queue' and not rule.fair or rule.kind == 'type' or rule.kind == 'header' or rule.kind == 'payload')
    rule.types = rule.types and #rule.types > 0 and rule.types or nil
    rule.interval = rule.rate and rule.per / rule.rate or 0
    rule.burst = rule.burst or 1
    rule.is_strict, rule.is_fair = rule.order == 'strict', rule.fair
    -- What runs under a breaker has slots, also without a cap.
    rule.concurrency = rule.is_strict and 1 or rule.concurrency or rule.breaker and 2 ^ 31
    rule.is_gate = rule.kind == 'queue' and not rule.types and not rule.is_strict
  end
  return rules
end
