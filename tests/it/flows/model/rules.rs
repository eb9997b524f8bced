//! The rules of batches, as `docs/flows.md` has them in words.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

pub(super) const OUTCOMES: [&str; 8] = ["ok", "failing", "dead", "removed", "cancelled", "again", "void", "skipped"];
pub(super) const EVENTS: [&str; 4] = ["death", "complete", "success", "settled"];
pub(super) const DEATH: usize = 0;
pub(super) const COMPLETE: usize = 1;
pub(super) const SUCCESS: usize = 2;
pub(super) const SETTLED: usize = 3;

/// How a callback stands: not enqueued, about to be, in its queue, ended well, ended badly.
pub(super) const NONE: &str = "none";
pub(super) const DUE: &str = "due";
pub(super) const SENT: &str = "sent";
pub(super) const OK: &str = "ok";
pub(super) const DEAD: &str = "dead";

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Flow {
    pub(super) states: Vec<u8>,
    pub(super) committed: bool,
    pub(super) cancelled: bool,
    pub(super) abandoned: bool,
    pub(super) over: bool,
    pub(super) generation: u32,
    pub(super) fired: [bool; 4],
    pub(super) callbacks: [Option<&'static str>; 4],
    /// Its parent, and the member that it is there.
    pub(super) parent: Option<(usize, usize)>,
    /// The batches that its members stand for.
    pub(super) kids: BTreeMap<usize, usize>,
    /// How many of its members are nodes: the first ones.
    pub(super) nodes: Option<usize>,
    /// What each node waits for, and what is wanted of that.
    pub(super) before: BTreeMap<usize, Vec<(usize, &'static str)>>,
    /// Its nodes that may fail.
    pub(super) may_fail: BTreeSet<usize>,
    /// It is a node, and its turn has not come.
    pub(super) held: bool,
    /// Its nodes of which somebody, or the time, has said what becomes of them.
    pub(super) said: BTreeSet<usize>,
    /// The generation in which something of it was run again last, and from which node on, if it was one of its own.
    pub(super) rerun: Option<(u32, Option<usize>)>,
    /// The runs of its members that were run again.
    pub(super) runs: BTreeMap<usize, u32>,
}

impl Flow {
    pub(super) fn count(&self, states: &[u8]) -> usize {
        self.states.iter().filter(|state| states.contains(state)).count()
    }

    pub(super) fn live(&self) -> usize {
        self.count(&[1, 2, 3, 10, 12])
    }

    pub(super) fn bad(&self) -> usize {
        let died = [COMPLETE, SUCCESS].into_iter().filter(|event| self.callbacks[*event] == Some(DEAD)).count();
        let cancelled = if self.cancelled { 0 } else { self.count(&[7]) };
        let is_bad = |(at, state): &(usize, &u8)| matches!(state, 5 | 6 | 10 | 12) && !self.may_fail.contains(at);
        self.states.iter().enumerate().filter(is_bad).count() + cancelled + died
    }

    /// What the states of others make of a node.
    pub(super) fn fate(&self, node: usize) -> u8 {
        let edges = self.before.get(&node).map(Vec::as_slice).unwrap_or_default();
        let is_over = |of: usize| matches!(self.states[of], 0 | 4..=8);
        let is_met = |of: usize, wanted: &str| match wanted {
            "" => self.states[of] == 4,
            "!" => matches!(self.states[of], 5 | 6),
            _ => true,
        };
        if edges.iter().any(|(of, wanted)| is_over(*of) && !is_met(*of, wanted)) {
            8
        } else if edges.iter().any(|(of, _)| !is_over(*of)) {
            1
        } else {
            2
        }
    }

    pub(super) fn run_of(&self, member: usize) -> u32 {
        self.runs.get(&member).copied().unwrap_or(1)
    }

    /// Whether a callback of this generation is the one that counts.
    fn is_of_now(&self, event: usize, generation: u32) -> bool {
        let since = self.rerun.map_or(1, |(since, _)| since);
        generation == self.generation || [COMPLETE, SUCCESS].contains(&event) && generation >= since
    }

    pub(super) fn has_ended(&self, event: usize) -> bool {
        !self.fired[event] || matches!(self.callbacks[event], None | Some(OK | DEAD))
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.fired[SETTLED] && self.has_ended(SETTLED)
    }

    /// What the parent sees in the member that stands for this batch.
    pub(super) fn seen(&self) -> u8 {
        let is_attempted = self.fired[COMPLETE] && self.has_ended(COMPLETE);
        let is_well = [COMPLETE, SUCCESS, SETTLED].into_iter().all(|event| self.callbacks[event] != Some(DEAD));
        if self.is_at_rest() {
            match () {
                () if self.fired[SUCCESS] && is_well => 4,
                () if self.cancelled => 7,
                () => 5,
            }
        } else if self.bad() > 0 {
            if is_attempted { 12 } else { 10 }
        } else if is_attempted && self.live() > 0 {
            3
        } else {
            2
        }
    }
}

/// A tree of batches.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) flows: Vec<Flow>,
    pub(super) todo: BTreeSet<String>,
    /// Those of them whose time is not over.
    pub(super) waiting: BTreeSet<String>,
    pub(super) table: HashMap<(u8, &'static str), u8>,
    /// Which node of each batch waits for which member of it.
    pub(super) waits: Vec<BTreeSet<(usize, usize)>>,
}

/// On whose behalf something is added: a batch, and its member or event.
pub(super) type Behalf = (usize, Result<usize, usize>);

impl Tree {
    pub(super) fn may_grow(&self, number: usize, behalf: Option<Behalf>) -> bool {
        let flow = &self.flows[number];
        if flow.cancelled || flow.abandoned || flow.fired[SUCCESS] {
            return false;
        }
        if flow.held && flow.parent.is_some_and(|(parent, at)| self.flows[parent].states[at] == 8) {
            return false;
        }
        if !flow.committed {
            return true;
        }
        let Some((below, part)) = behalf else { return false };
        let runs = match part {
            Ok(member) => matches!(self.flows[below].states.get(member), Some(2 | 3)),
            Err(event) => matches!(self.flows[below].callbacks[event], Some(DUE | SENT)),
        };
        let mut line = std::iter::successors(Some(below), |it| self.flows[*it].parent.map(|(parent, _)| parent));
        runs && line.any(|it| it == number)
    }

    pub(super) fn fire(&mut self, number: usize, event: usize) {
        let flow = &mut self.flows[number];
        flow.fired[event] = true;
        if flow.callbacks[event].is_some() {
            flow.callbacks[event] = Some(DUE);
            self.todo.insert(format!("call {number} {} {}", EVENTS[event], flow.generation));
        }
    }

    pub(super) fn apply_rules(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        let recovered = flow.fired[DEATH] && flow.bad() == 0;
        let is_closed = flow.committed || flow.cancelled || flow.abandoned;
        let goes_on = flow.live() > 0 || !is_closed;
        if !flow.fired[SUCCESS] && (flow.fired[SETTLED] && goes_on || recovered) {
            flow.generation += 1;
            flow.over = false;
            for event in [DEATH, SETTLED] {
                flow.fired[event] = false;
                flow.callbacks[event] = flow.callbacks[event].map(|_| NONE);
            }
        }
        for event in [DEATH, COMPLETE, SUCCESS, SETTLED] {
            let flow = &self.flows[number];
            let is_closed = flow.committed || flow.cancelled || flow.abandoned;
            let is_whole = flow.committed && !flow.cancelled && !flow.abandoned;
            let happens = match event {
                DEATH => flow.bad() > 0,
                COMPLETE => is_whole && flow.count(&[1, 2, 10]) == 0,
                SUCCESS => {
                    let is_completed = matches!(flow.callbacks[COMPLETE], None | Some(OK));
                    is_whole && flow.live() == 0 && flow.bad() == 0 && is_completed
                }
                _ => is_closed && flow.live() == 0 && [DEATH, COMPLETE, SUCCESS].iter().all(|it| flow.has_ended(*it)),
            };
            if happens && !flow.fired[event] {
                self.fire(number, event);
            }
        }
        let flow = &mut self.flows[number];
        flow.over |= flow.is_at_rest();
        let seen = flow.seen();
        if let Some((parent, at)) = flow.parent
            && ![seen, 1, 8].contains(&self.flows[parent].states[at])
            && !self.flows[parent].fired[SUCCESS]
        {
            self.flows[parent].states[at] = seen;
            self.walk(parent, vec![at], false);
            self.apply_rules(parent);
        }
    }

    /// Looks again at the nodes that wait for members which have moved, or at all.
    pub(super) fn walk(&mut self, number: usize, mut moved: Vec<usize>, at_all: bool) {
        let flow = &mut self.flows[number];
        let may_run = flow.committed && !flow.cancelled && !flow.abandoned && !flow.fired[SUCCESS];
        let Some(nodes) = flow.nodes.filter(|_| may_run) else { return };
        let mut look_at = |node: usize, moved: &mut Vec<usize>| {
            let (state, fate) = (flow.states[node], flow.fate(node));
            let is_said = state == 8 && flow.said.contains(&node);
            if !matches!(state, 1 | 8) || is_said || fate == state {
                return;
            }
            flow.states[node] = fate;
            if fate == 2 {
                self.todo.insert(match (flow.kids.get(&node), flow.runs.get(&node)) {
                    (Some(kid), _) => format!("nodes {kid} 0"),
                    (None, None) => format!("run {number} {node}"),
                    (None, Some(run)) => format!("run {number} {node} {run}"),
                });
            }
            if state == 8 || fate == 8 {
                moved.push(node);
            }
        };
        (0..nodes).filter(|_| at_all).for_each(|node| look_at(node, &mut moved));
        let waits = self.waits[number].clone();
        let mut next = 0;
        while let Some(member) = moved.get(next).copied() {
            for node in waits.iter().filter(|(_, of)| *of == member).map(|(node, _)| *node) {
                look_at(node, &mut moved);
            }
            next += 1;
        }
    }

    /// All nodes of a batch are looked at, and if its turn has come, it begins.
    pub(super) fn look_at_nodes(&mut self, number: usize) {
        self.todo.remove(&format!("nodes {number} 0"));
        if self.flows[number].held && !self.is_dormant(number) {
            self.flows[number].held = false;
            self.flows[number].committed = true;
        }
        self.walk(number, Vec::new(), true);
        self.apply_rules(number);
    }

    /// Whether the turn of a batch has not come in its parent, or does not come.
    pub(super) fn is_dormant(&self, number: usize) -> bool {
        self.flows[number].parent.is_some_and(|(parent, at)| matches!(self.flows[parent].states[at], 1 | 8))
    }

    /// Returns whether the batch was made; `node`: what it is in its parent.
    pub(super) fn open(
        &mut self,
        parent: Option<usize>,
        behalf: Option<Behalf>,
        node: Option<usize>,
        fresh: Flow,
    ) -> bool {
        let is_late = |parent: usize| node.is_some() && self.flows[parent].committed;
        if parent.is_some_and(|parent| !self.may_grow(parent, behalf) || is_late(parent)) {
            return false;
        }
        let number = self.flows.len();
        let at = parent.map(|parent| {
            let flow = &mut self.flows[parent];
            let at = node.unwrap_or_else(|| {
                flow.states.push(2);
                flow.states.len() - 1
            });
            flow.kids.insert(at, number);
            (parent, at)
        });
        let edges = fresh.before.iter().flat_map(|(node, edges)| edges.iter().map(|(of, _)| (*node, *of)));
        self.waits.push(edges.collect());
        self.flows.push(Flow { generation: 1, parent: at, held: node.is_some(), ..fresh });
        self.apply_rules(number);
        true
    }

    /// Somebody makes a batch again that is there.
    pub(super) fn take_up(&mut self, number: usize, behalf: Option<Behalf>) {
        let may = self.flows[number].parent.is_none_or(|(parent, _)| self.may_grow(parent, behalf));
        let flow = &mut self.flows[number];
        if may && flow.abandoned && !flow.cancelled {
            flow.abandoned = false;
            self.apply_rules(number);
        }
    }

    /// Returns the letter of the answer.
    pub(super) fn mark(&mut self, number: usize, what: &str) -> &'static str {
        let is_cancelled = what == "cancelled";
        let flow = &mut self.flows[number];
        let is_known = if is_cancelled { flow.cancelled } else { flow.committed || flow.held };
        if is_known {
            return "s";
        }
        if flow.over || flow.fired[SUCCESS] || flow.cancelled || flow.abandoned {
            return "d";
        }
        if is_cancelled {
            flow.cancelled = true;
            if let Some((parent, at)) = flow.parent.filter(|_| flow.held)
                && self.flows[parent].states[at] == 1
            {
                self.flows[parent].states[at] = 2;
                self.flows[number].held = false;
            }
            self.todo.insert(format!("stop {number}"));
        } else {
            let flow = &mut self.flows[number];
            flow.committed = true;
            if flow.nodes.is_some() {
                self.todo.insert(format!("nodes {number} 0"));
            }
        }
        self.apply_rules(number);
        "a"
    }

    /// Those that wait for a member of a batch, by themselves or by others.
    fn behind(&self, number: usize, member: usize) -> BTreeSet<usize> {
        let (mut found, mut next) = (BTreeSet::new(), vec![member]);
        while let Some(member) = next.pop() {
            let those = self.waits[number].iter().filter(|(_, of)| *of == member).map(|(node, _)| *node);
            next.extend(those.filter(|node| found.insert(*node)));
        }
        found
    }

    /// A node is run again, with all that is behind it. Returns the letter of the answer.
    pub(super) fn rerun(&mut self, number: usize, node: usize, seen: u32) -> &'static str {
        let flow = &self.flows[number];
        if flow.nodes.is_none_or(|nodes| node >= nodes) {
            return "m";
        } else if flow.rerun == Some((seen + 1, Some(node))) {
            return "s";
        } else if flow.generation != seen {
            return "c";
        }
        let mut parts = vec![(number, self.behind(number, node))];
        parts[0].1.insert(node);
        let mut below = number;
        while let Some((parent, at)) = self.flows[below].parent {
            parts.push((parent, self.behind(parent, at)));
            below = parent;
        }
        let above = parts.len();
        let is_whole = |it: &Flow| it.committed && !it.cancelled && !it.abandoned;
        if !parts.iter().all(|(it, _)| is_whole(&self.flows[*it])) {
            return "d";
        }
        let mut next = 0;
        while let Some((it, members)) = parts.get(next) {
            let kids: Vec<usize> = members.iter().filter_map(|at| self.flows[*it].kids.get(at).copied()).collect();
            parts.extend(kids.into_iter().map(|kid| (kid, (0..self.flows[kid].nodes.unwrap_or(0)).collect())));
            next += 1;
        }
        let is_live = |(it, members): &(usize, BTreeSet<usize>)| {
            let flow = &self.flows[*it];
            let is_called = |event: usize| matches!(flow.callbacks[event], Some(DUE | SENT));
            [COMPLETE, SUCCESS, SETTLED].into_iter().any(is_called)
                || members.iter().any(|at| matches!(flow.states[*at], 2 | 3 | 10 | 12))
        };
        let is_foreign = |(it, _): &(usize, BTreeSet<usize>)| {
            let flow = &self.flows[*it];
            flow.states[flow.nodes.unwrap_or(0)..].iter().any(|state| *state != 0)
        };
        if parts.iter().any(is_live) || self.flows[number].states[node] == 1 {
            return "n";
        } else if parts[above..].iter().any(is_foreign) {
            return "k";
        } else if self.flows[number].fate(node) == 8 {
            return "y";
        }
        let opened: Vec<usize> = parts[..above].iter().map(|(it, _)| *it).collect();
        for (n, (it, members)) in parts.into_iter().enumerate() {
            let flow = &mut self.flows[it];
            flow.generation += 1;
            flow.rerun = Some((flow.generation, (n == 0).then_some(node)));
            flow.over = false;
            flow.fired = [false; 4];
            flow.callbacks = flow.callbacks.map(|callback| callback.map(|_| NONE));
            if n >= above {
                (flow.committed, flow.cancelled, flow.abandoned, flow.held) = (false, false, false, true);
                self.todo.remove(&format!("stop {it}"));
            }
            for member in members {
                flow.states[member] = 1;
                flow.runs.insert(member, flow.generation);
                flow.said.remove(&member);
                self.todo.remove(&format!("late {it} {member}"));
            }
        }
        self.todo.insert(format!("nodes {number} 0"));
        for it in opened {
            self.apply_rules(it);
        }
        "a"
    }

    /// What is told of one run of some members. Returns how many of them have moved.
    pub(super) fn tell(&mut self, number: usize, outcome: &'static str, run: u32, members: &BTreeSet<usize>) -> usize {
        let of_now = members.iter().copied().filter(|member| self.flows[number].run_of(*member) == run).collect();
        self.record(number, outcome, &of_now)
    }

    /// Returns how many members have moved.
    fn record(&mut self, number: usize, outcome: &'static str, members: &BTreeSet<usize>) -> usize {
        let flow = &mut self.flows[number];
        if flow.fired[SUCCESS] {
            return 0;
        }
        let mut moved = Vec::new();
        let is_stopped = flow.cancelled && matches!(outcome, "dead" | "removed");
        let outcome = if is_stopped { "cancelled" } else { outcome };
        for member in members {
            let from = flow.states.get(*member).copied().unwrap_or(0);
            if let Some(to) = self.table.get(&(from, outcome)) {
                flow.states.resize(flow.states.len().max(member + 1), 0);
                flow.states[*member] = *to;
                moved.push(*member);
            }
        }
        let count = moved.len();
        if count > 0 {
            self.walk(number, moved, false);
            self.apply_rules(number);
        }
        count
    }

    /// What a node waits for that is no task was said, or its time is over, or begins. Returns the letter of the answer.
    pub(super) fn signal(&mut self, number: usize, node: usize, what: &str) -> &'static str {
        let late = format!("late {number} {node}");
        let flow = &mut self.flows[number];
        let (state, is_said) = (flow.states[node], matches!(what, "given" | "declined"));
        let is_closed = flow.cancelled || flow.abandoned || flow.fired[SUCCESS];
        let has_ended = state == 4 || state == 8 && what == "declined" || !is_said && state != 2;
        if has_ended || is_closed {
            self.todo.remove(&late);
            return if has_ended { "s" } else { "d" };
        }
        if what == "wait" {
            if self.todo.insert(late.clone()) {
                self.waiting.insert(late);
            }
            return "a";
        }
        if !is_said && (!self.todo.contains(&late) || self.waiting.contains(&late)) {
            return "s";
        }
        self.todo.remove(&late);
        let outcome = match what {
            "given" | "succeed" => "ok",
            "fail" => "dead",
            _ => "skipped",
        };
        if !self.table.contains_key(&(state, outcome)) {
            return "s";
        }
        flow.said.insert(node);
        self.record(number, outcome, &BTreeSet::from([node]));
        "a"
    }

    /// Returns whether that was news.
    pub(super) fn record_callback(
        &mut self,
        number: usize,
        event: usize,
        generation: u32,
        ended: &'static str,
    ) -> bool {
        self.todo.remove(&format!("call {number} {} {generation}", EVENTS[event]));
        let flow = &mut self.flows[number];
        let is_of_now = flow.is_of_now(event, generation);
        let known = flow.callbacks[event];
        let is_news = is_of_now && known != Some(ended) && matches!(known, Some(DUE | SENT | DEAD));
        if is_news {
            flow.callbacks[event] = Some(ended);
            self.apply_rules(number);
        }
        is_news
    }

    pub(super) fn carry(&mut self, entry: &str) {
        self.todo.remove(entry);
        if let Some((number, event, generation)) = callback_of(entry) {
            let flow = &mut self.flows[number];
            if flow.is_of_now(event, generation) && flow.callbacks[event] == Some(DUE) {
                flow.callbacks[event] = Some(SENT);
            }
        }
    }

    pub(super) fn abandon(&mut self) {
        for number in 0..self.flows.len() {
            let flow = &mut self.flows[number];
            if flow.held && !flow.over {
                if !self.is_dormant(number) {
                    self.todo.insert(format!("nodes {number} 0"));
                }
            } else if !flow.over && !flow.committed && !flow.cancelled && !flow.abandoned {
                flow.abandoned = true;
                if flow.nodes.is_some() {
                    flow.cancelled = true;
                    self.todo.insert(format!("stop {number}"));
                }
                self.apply_rules(number);
            }
        }
    }
}

/// The batch, event and generation of an entry that calls one.
pub(super) fn callback_of(entry: &str) -> Option<(usize, usize, u32)> {
    let words: Vec<&str> = entry.split(' ').collect();
    let ["call", number, event, generation] = words[..] else { return None };
    let event = EVENTS.iter().position(|it| *it == event)?;
    Some((number.parse().ok()?, event, generation.parse().ok()?))
}

pub(super) fn source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The states that outcomes lead to, as the document has them.
pub(super) fn table() -> HashMap<(u8, &'static str), u8> {
    let document = source("docs/flows.md");
    let (_, table) = document.split_once("### States of a member").unwrap();
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split('|').map(str::trim).collect();
        Some((cells[0].parse::<u8>().ok()?, cells))
    });
    let mut moves = HashMap::new();
    for (state, cells) in rows {
        let ends = OUTCOMES.into_iter().zip(&cells[3..]).filter_map(|(outcome, to)| Some((outcome, to.parse().ok()?)));
        moves.extend(ends.map(|(outcome, to)| ((state, outcome), to)));
    }
    assert_eq!(moves.len(), 28, "the table of docs/flows.md has other rows or columns than this test reads");
    moves
}
