//! What is measured, and what it should reach.

/// What a figure has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// As many times better than Go.
    Times(f64),
    /// No more than this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// One comparison.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// The field of the programs' JSON that counts; empty for the commands that Redis saw per second.
    pub(crate) field: &'static str,
    pub(crate) must: Target,
    pub(crate) goal: Target,
    /// Arguments of `queuectl bench`, and of the Go program. `{tasks}` is replaced.
    pub(crate) ours: &'static str,
    pub(crate) go: &'static str,
    /// Tasks for ours and for Go, where Go would take minutes for as many.
    pub(crate) tasks: (u64, u64),
    /// Whether the queue is filled with them before the clock starts.
    pub(crate) filled: bool,
    /// Redis is one millisecond away, there and back.
    pub(crate) far: bool,
    /// Redis writes an append-only file, synced every second.
    pub(crate) durable: bool,
    /// Tasks that others have been working on all the while.
    pub(crate) active: u64,
    /// Processes of each side that run at the same time.
    pub(crate) processes: usize,
    /// Whether `make bench-quick` leaves it out.
    pub(crate) slow: bool,
}

const FIGURE: Figure = Figure {
    name: "",
    unit: "tasks/s",
    field: "per_second",
    must: Target::AtLeast(0.0),
    goal: Target::AtLeast(0.0),
    ours: "",
    go: "",
    tasks: (60_000, 60_000),
    filled: false,
    far: false,
    durable: false,
    active: 0,
    processes: 1,
    slow: false,
};

const fn drain(name: &'static str, arguments: (&'static str, &'static str), must: f64, goal: f64) -> Figure {
    let (ours, go) = arguments;
    Figure { name, ours, go, must: Target::Times(must), goal: Target::Times(goal), filled: true, ..FIGURE }
}

/// The figure whose use of CPU and memory has targets too.
pub(crate) const PLAIN: &str = "drain, concurrency 50";

const DRAIN_10: (&str, &str) = ("drain --concurrency 10", "drain -concurrency 10");
const DRAIN_50: (&str, &str) = ("drain --concurrency 50", "drain -concurrency 50");
const DRAIN_100: (&str, &str) = ("drain --concurrency 100", "drain -concurrency 100");

const fn enqueue(name: &'static str, arguments: (&'static str, &'static str), must: f64, goal: f64) -> Figure {
    Figure { filled: false, ..drain(name, arguments, must, goal) }
}

const fn latency(
    name: &'static str,
    arguments: (&'static str, &'static str),
    field: &'static str,
    must: f64,
    goal: f64,
) -> Figure {
    let (ours, go) = arguments;
    let (must, goal) = (Target::AtMost(must), Target::AtMost(goal));
    Figure { name, unit: "ms", field, ours, go, must, goal, tasks: (0, 0), slow: true, ..FIGURE }
}

const RARE: (&str, &str) = ("latency --rate 10 --seconds 5", "latency -rate 10 -seconds 5");
const STEADY: (&str, &str) = ("latency --rate 1000 --seconds 5", "latency -rate 1000 -seconds 5");
const LATE: (&str, &str) = ("late --tasks 500 --seconds 5", "late -tasks 500 -seconds 5");

/// All figures; with `quick` a fifth of the tasks, and none that takes long.
pub(crate) fn all(quick: bool) -> Vec<Figure> {
    let mut figures = vec![
        drain("drain, concurrency 10", DRAIN_10, 5.0, 8.0),
        drain(PLAIN, DRAIN_50, 6.0, 12.0),
        drain("drain, concurrency 100", DRAIN_100, 6.0, 12.0),
        Figure { durable: true, ..drain("drain, concurrency 50, append-only file", DRAIN_50, 1.0, 6.0) },
        Figure { processes: 3, ..drain("drain, 3 processes of concurrency 50", DRAIN_50, 1.0, 6.0) },
        Figure { active: 10_000, ..drain("drain, concurrency 50, beside 10,000 active tasks", DRAIN_50, 1.0, 12.0) },
        Figure {
            far: true,
            tasks: (20_000, 2_000),
            ..drain("drain, concurrency 50, Redis 1 ms away", DRAIN_50, 15.0, 25.0)
        },
        Figure {
            far: true,
            tasks: (20_000, 2_000),
            ..drain("drain, concurrency 100, Redis 1 ms away", DRAIN_100, 25.0, 70.0)
        },
        Figure {
            must: Target::AtLeast(9_500.0),
            goal: Target::AtLeast(9_900.0),
            tasks: (20_000, 20_000),
            ..drain(
                "drain, concurrency 100, handlers of 10 ms",
                ("drain --concurrency 100 --work 10ms", "drain -concurrency 100 -work-ms 10"),
                0.0,
                0.0,
            )
        },
        enqueue(
            "enqueue and drain at once, 50 callers, concurrency 50",
            ("e2e --tasks {tasks} --callers 50 --concurrency 50", "e2e -tasks {tasks} -callers 50 -concurrency 50"),
            5.0,
            10.0,
        ),
        enqueue(
            "enqueue, 50 callers",
            ("enqueue --tasks {tasks} --callers 50", "enqueue -tasks {tasks} -callers 50"),
            2.0,
            3.5,
        ),
        Figure {
            tasks: (20_000, 20_000),
            ..enqueue(
                "enqueue, 1 caller",
                ("enqueue --tasks {tasks} --callers 1", "enqueue -tasks {tasks} -callers 1"),
                0.9,
                1.0,
            )
        },
        enqueue(
            "enqueue, 1 caller, 100 tasks per call (Go: one per call)",
            ("enqueue --tasks {tasks} --callers 1 --batch 100", "enqueue -tasks {tasks} -callers 1"),
            1.8,
            3.0,
        ),
        latency("start after enqueue, 10 tasks/s, p50", RARE, "p50_ms", 1.0, 0.25),
        latency("start after enqueue, 10 tasks/s, p99", RARE, "p99_ms", 10.0, 4.0),
        latency("start after enqueue, 1,000 tasks/s, p99", STEADY, "p99_ms", 5.0, 0.4),
        latency("start after the due second, p99", LATE, "p99_ms", 50.0, 10.0),
        Figure {
            unit: "commands/s",
            ..latency(
                "an idle server with 4 queues",
                (
                    "worker --queue idle-1 --queue idle-2 --queue idle-3 --queue idle-4 --exec x=true",
                    "idle -seconds 3600",
                ),
                "",
                6.0,
                2.0,
            )
        },
    ];
    if quick {
        figures.retain(|figure| !figure.slow);
        for figure in &mut figures {
            figure.tasks.0 /= 5;
            figure.tasks.1 /= 5;
        }
    }
    figures
}
