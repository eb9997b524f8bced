-- is_finished: whether the state of a task, as the hash has it or an error says it, is that of one which nobody is going to work on unless
-- somebody asks for it: archived, completed, or no more.
-- needs: is_wrong_type
local function is_finished(state)
  return not state or state == 'archived' or state == 'completed' or is_wrong_type(state)
end
