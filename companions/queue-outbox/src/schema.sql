-- Tasks that are enqueued when the transaction that has written them is committed. `queuectl outbox relay` takes them to Redis, in the order of
-- seq, and deletes them. What can never be enqueued stays, with the reason.
CREATE TABLE IF NOT EXISTS queue_outbox (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- What Redis knows it by, and the id of a task that has none of its own: leave it to the database.
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  -- As a line of `queuectl enqueue --batch`, or what queue-outbox makes of a task; or a batch or a workflow, with `tasks` or `nodes`.
  task json NOT NULL CONSTRAINT queue_outbox_task_has_type_tasks_or_nodes CHECK (json_typeof(task) = 'object' AND COALESCE(task->>'type', task->>'tasks', task->>'nodes', '') <> ''),
  queue text NOT NULL GENERATED ALWAYS AS (CASE WHEN task->>'type' IS NULL THEN '' ELSE COALESCE(task->>'queue', 'default') END) STORED,
  created_at timestamptz NOT NULL DEFAULT now(),
  refusal text,
  refused_at timestamptz
);
CREATE INDEX IF NOT EXISTS queue_outbox_waiting ON queue_outbox (seq) WHERE refusal IS NULL;
