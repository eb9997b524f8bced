//! Members of a large batch, near each other and far apart: which bytes of the states are read and written together makes no difference to
//! what becomes of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fastrand::Rng;

use super::rules::{Flow, Tree, table};
use super::{Run, script};
use crate::support::Fixture;

const SEEDS: u64 = 24;
const CALLS: usize = 20;
/// As many as one call tells of.
const MOST: usize = 100;
/// How far beyond the last number of a batch one is believed.
const BELIEVED: usize = 100_000;
/// What lies between two members that are told of: nothing, whole bytes and half ones, and as much as is read at once, and more.
const GAPS: [usize; 14] = [1, 1, 1, 2, 3, 4, 30, 31, 32, 33, 34, 64, 65, 1_500];

/// What members are told of in one call.
fn members(rng: &mut Rng, count: usize, next: usize) -> Vec<usize> {
    let wanted = [1, 2, 3, 17, MOST][rng.usize(..5)];
    let gaps: Vec<usize> = (0..rng.usize(1..4)).map(|_| GAPS[rng.usize(..GAPS.len())]).collect();
    let ends = [0, 1, count.saturating_sub(2), count.saturating_sub(1), count, count + 1];
    let mut at = if rng.bool() { ends[rng.usize(..ends.len())] } else { rng.usize(..count) };
    let mut members = Vec::new();
    while members.len() < wanted {
        members.push(at);
        at += gaps[rng.usize(..gaps.len())];
        if at > count + 2 {
            // From the other end, so that both are among them.
            at = rng.usize(..count.min(70));
        }
    }
    if rng.u8(..16) == 0 {
        // A row that is believed in part.
        let end = next + BELIEVED;
        members.truncate(MOST - 5);
        members.extend(end - 2..end + 3);
    }
    rng.shuffle(&mut members);
    members
}

/// Numbers as they are, or sorted, those in a row by their ends.
fn in_rows(rng: &mut Rng, numbers: &[usize]) -> Vec<String> {
    if rng.bool() {
        return numbers.iter().map(usize::to_string).collect();
    }
    let sorted: Vec<usize> = numbers.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let rows = sorted.chunk_by(|one, next| one + 1 == *next);
    rows.map(|row| if row.len() == 1 { row[0].to_string() } else { format!("{}-{}", row[0], row[row.len() - 1]) })
        .collect()
}

#[tokio::test]
async fn members_far_apart_move_as_those_do_that_lie_close() {
    let fixture = Fixture::start().await;
    let mut scripts = HashMap::new();
    for name in ["flow_open", "flow_record"] {
        let sha: String = fixture.cmd(&["SCRIPT".to_owned(), "LOAD".to_owned(), script(name)]).await;
        scripts.insert(name, sha);
    }
    let mut moves: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let count = [1, 2, 3, 7, 64, 65, 66, 67, 999, 20_000][rng.usize(..10)];
        let mut run = Run::of(&fixture, &scripts, seed, Tree { table: table(), ..Tree::default() });
        let head = ["", "", "", &count.to_string(), "q", "", "", "0", "0", "", ""].map(str::to_owned);
        assert_eq!(run.call("flow_open", &head).await[0], "a");
        run.tree.open(None, None, None, Flow { states: vec![2; count], ..Flow::default() });
        run.check(&[]).await;
        for _ in 0..CALLS {
            let outcome = ["ok", "ok", "failing", "dead", "removed", "cancelled", "again", "void"][rng.usize(..8)];
            let next = run.tree.flows[0].states.len();
            let told = members(&mut rng, count, next);
            let numbers = in_rows(&mut rng, &told);
            let mut words = ["", "0", outcome, &numbers.len().to_string()].map(str::to_owned).to_vec();
            words.extend(numbers);
            let answer = run.call("flow_record", &words).await;
            let believed: BTreeSet<usize> = told.into_iter().filter(|it| *it < next + BELIEVED).collect();
            let moved = run.tree.tell(0, outcome, 1, &believed);
            assert_eq!(answer[0], moved.to_string(), "{outcome} {believed:?}");
            *moves.entry(outcome).or_default() += moved;
            let before = run.tree.flows.clone();
            run.check(&before).await;
            // Nothing but zeros stands beyond the last member, not even in half a byte.
            let states: Vec<u8> = fixture.cmd(&["GET", &format!("asynq:x:{{{seed}}}:0:states")]).await;
            let expected = run.tree.flows[0].states.chunks(2);
            let expected: Vec<u8> = expected.map(|two| two[0] << 4 | two.get(1).copied().unwrap_or(0)).collect();
            let beyond = states.strip_prefix(&expected[..]);
            assert!(beyond.is_some_and(|beyond| beyond.iter().all(|byte| *byte == 0)), "bytes of the states");
        }
    }
    assert!(moves.len() == 7 && moves.values().all(|count| *count > 20), "{moves:?}");
}
