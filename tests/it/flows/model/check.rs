//! Whether the tree in Redis is as the model says, and what must always hold does.

use std::collections::{BTreeSet, HashMap};

use super::Run;
use super::rules::{COMPLETE, DEAD, DUE, EVENTS, Flow, NONE, OK, SENT, SETTLED, SUCCESS, callback_of};

/// Answers all flows of a tree, and what is to be done.
const READ: &str = r"
    local flows = {}
    for number = 0, ARGV[2] - 1 do
      local hash, flow = redis.call('HGETALL', ARGV[1] .. number .. ':flow'), {}
      for n = 1, #hash, 2 do
        flow[hash[n]] = hash[n + 1]
      end
      local states = redis.call('GET', ARGV[1] .. number .. ':states') or ''
      flow.runs = table.concat(redis.call('HGETALL', ARGV[1] .. number .. ':runs'), ' ')
      flow.states = string.gsub(states, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
      flows[#flows + 1] = flow
    end
    return { cjson.encode(flows), unpack(redis.call('ZRANGE', ARGV[1] .. 'todo', 0, -1)) }";

impl Run<'_> {
    /// Reads the tree, compares it with the model, and looks whether what must always hold does.
    pub(super) async fn check(&mut self, before: &[Flow]) {
        let count = self.tree.flows.len();
        let words = ["EVAL".to_owned(), READ.to_owned(), "0".to_owned(), self.prefix.clone(), count.to_string()];
        let answer: Vec<String> = self.fixture.cmd(&words).await;
        let (json, todo) = answer.split_first().unwrap();
        let hashes: Vec<HashMap<String, String>> = serde_json::from_str(json).unwrap();
        let mut flows = Vec::new();
        for (hash, expected) in hashes.iter().zip(&self.tree.flows) {
            let number = |field: &str| hash.get(field).map_or(0, |number| number.parse().unwrap());
            let mut states: Vec<u8> = hash["states"].chars().map(|it| it.to_digit(16).unwrap() as u8).collect();
            states.resize(number("next"), 0);
            let known = |text: &String| [NONE, DUE, SENT, OK, DEAD].into_iter().find(|it| it == text).unwrap();
            let flow = Flow {
                states,
                committed: hash.contains_key("committed"),
                cancelled: hash.contains_key("cancelled"),
                abandoned: hash.contains_key("abandoned"),
                over: hash.contains_key("over"),
                generation: number("generation") as u32,
                fired: EVENTS.map(|event| hash.contains_key(&format!("fired:{event}"))),
                callbacks: EVENTS.map(|event| hash.get(&format!("callback:{event}")).map(known)),
                parent: expected.parent,
                kids: expected.kids.clone(),
                said: expected.said.clone(),
                nodes: hash.get("nodes").map(|nodes| nodes.parse().unwrap()),
                before: expected.before.clone(),
                may_fail: expected.may_fail.clone(),
                held: hash.contains_key("held"),
                rerun: hash
                    .get("rerun")
                    .map(|since| (since.parse().unwrap(), hash.get("rerun_from").map(|node| node.parse().unwrap()))),
                runs: hash["runs"]
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .chunks(2)
                    .map(|pair| (pair[0].parse().unwrap(), pair[1].parse().unwrap()))
                    .collect(),
            };
            assert_eq!(flow, *expected);
            for state in 1..16 {
                assert_eq!(
                    number(&format!("c{state}")),
                    flow.count(&[state]),
                    "the counter of state {state}: {flow:?}"
                );
            }
            flows.push(flow);
        }
        let todo: BTreeSet<String> = todo.iter().cloned().collect();
        assert_eq!(todo, self.tree.todo);
        for (number, flow) in flows.iter().enumerate() {
            // Unless it was opened again.
            let known = before.get(number).filter(|before| before.rerun == flow.rerun);
            let had = |event: usize| known.is_some_and(|before| before.fired[event]);
            for event in [COMPLETE, SUCCESS] {
                assert!(flow.fired[event] || !had(event), "what happens once is taken back");
            }
            if flow.fired[SUCCESS] {
                let is_well = |(at, state): (usize, &u8)| matches!(state, 0 | 4 | 8) || flow.may_fail.contains(&at);
                assert!(flow.states.iter().enumerate().all(is_well), "success, but {flow:?}");
            }
            if flow.fired[SETTLED] && !had(SETTLED) || flow.over {
                assert_eq!(flow.live(), 0, "settled or over, but {flow:?}");
            }
            // A node that did not run leaves its batch as it was.
            let has_run = |at: usize| flow.states[at] != 8;
            // One that may fail can be run again when its batch is over.
            let matters = |at: usize| has_run(at) && !flow.may_fail.contains(&at);
            let kids_are_over = flow.kids.iter().all(|(at, kid)| flows[*kid].over || !matters(*at));
            assert!(!flow.over || kids_are_over, "over before its children: {flow:?}");
        }
        for entry in todo.difference(&self.known_todo) {
            if entry.starts_with("run ") {
                assert!(self.released.insert(entry.clone()), "{entry}: a second time");
            }
            let Some((number, event, generation)) = callback_of(entry) else { continue };
            let is_once = [COMPLETE, SUCCESS].contains(&event);
            let since = flows[number].rerun.map_or(0, |(since, _)| since);
            let is_new = self.ever.insert((number, event, if is_once { since } else { generation }));
            assert!(is_new, "{entry}: a second time");
            self.called.push((number, event, generation));
        }
        self.known_todo = todo;
    }
}
