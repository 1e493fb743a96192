//! Every order of events, up to a bound, over the real [`Pen`]: writers that are paused anywhere, puts whose answers are lost, puts that take
//! effect long after their writer has given them up, old entries deleted one by one in any order, a reader.
//!
//! What must hold: numbers are given once, so that the first entry ever put under a number is the one that anybody acts on or reads; each
//! follows from the one before.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::super::decision::Writer;
use super::super::entry::Entry;
use super::super::pen::{Answer, Ask, Next, Outcome, Pen, dispensable};
use super::{begun, completed, writer};

/// What writers can do, and what can happen to them.
#[derive(Clone, Copy)]
struct Bounds {
    writers: u64,
    /// Entries that each of them begins to put.
    puts: u8,
    /// Answers to puts that are lost.
    losses: u8,
    /// Numbers beyond this one are not put.
    number_max: u64,
    reader: bool,
    /// States that are looked at.
    states_max: usize,
}

#[derive(Clone, Hash)]
enum Doing {
    Nothing,
    /// A request is on its way.
    Waiting(Ask),
    /// It has just read the log.
    Deciding,
    /// It deletes old entries.
    Deleting(BTreeSet<u64>),
}

#[derive(Clone, Hash)]
struct Actor {
    pen: Pen,
    doing: Doing,
    puts: u8,
}

#[derive(Clone, Hash)]
struct World {
    /// What the store holds.
    entries: BTreeMap<u64, Arc<Entry>>,
    /// The first entry ever put under each number.
    history: BTreeMap<u64, Arc<Entry>>,
    /// Puts that nobody waits for any more, and that may still take effect.
    late: Vec<Arc<Entry>>,
    losses: u8,
    actors: Vec<Actor>,
    reader: Option<(Pen, Doing)>,
}

/// What happened, for people.
type Step = String;

impl World {
    fn new(bounds: &Bounds) -> World {
        let actor = |nonce| Actor { pen: Pen::new(writer(nonce)), doing: Doing::Nothing, puts: 0 };
        World {
            entries: BTreeMap::new(),
            history: BTreeMap::new(),
            late: Vec::new(),
            losses: 0,
            actors: (1..=bounds.writers).map(actor).collect(),
            reader: bounds.reader.then(|| (Pen::reader(), Doing::Nothing)),
        }
    }

    /// Whether the number was taken.
    fn put(&mut self, entry: &Arc<Entry>) -> Result<bool, String> {
        if self.entries.contains_key(&entry.number) {
            return Ok(true);
        }
        self.entries.insert(entry.number, Arc::clone(entry));
        if self.history.contains_key(&entry.number) {
            return Ok(false);
        }
        let before = self.history.last_key_value().map(|(number, entry)| (*number, entry.state.clone())).unwrap_or_default();
        if entry.number != before.0 + 1 || before.1.after(entry.number, entry.by, &entry.decision) != entry.state {
            return Err(format!("entry {} does not follow from entry {}", entry.number, before.0));
        }
        self.history.insert(entry.number, Arc::clone(entry));
        Ok(false)
    }

    fn carry_out(&mut self, ask: &Ask) -> Result<Answer, String> {
        Ok(match ask {
            Ask::List { after } => Answer::Listed(self.entries.range(after + 1..).map(|(number, _)| *number).collect()),
            Ask::Get(number) => Answer::Got(self.entries.get(number).map(|entry| Box::new(Entry::clone(entry)))),
            Ask::Put(entry) => {
                if self.put(entry)? {
                    Answer::Taken
                } else {
                    Answer::Written
                }
            }
        })
    }

    /// What a pen has read, or says that counts, is history.
    fn check(&self, who: &str, pen: &Pen) -> Result<(), String> {
        match self.history.get(&pen.number()) {
            None if pen.number() == 0 => Ok(()),
            Some(entry) if entry.state == **pen.state() => Ok(()),
            _ => Err(format!("{who} takes entry {} for history", pen.number())),
        }
    }

    fn answered(&mut self, index: usize, ask: &Ask) -> Result<(), String> {
        let answer = self.carry_out(ask)?;
        let actor = &mut self.actors[index];
        actor.doing = match actor.pen.answer(answer) {
            Next::Ask(next) => Doing::Waiting(next),
            Next::Done(Outcome::Read) => Doing::Deciding,
            Next::Done(Outcome::Won | Outcome::Lost) => Doing::Nothing,
            Next::Confused => return Err("confused".to_owned()),
        };
        if !matches!(actor.doing, Doing::Waiting(_)) {
            let pen = actor.pen.clone();
            self.check(&format!("W{index}"), &pen)?;
        }
        Ok(())
    }

    /// All that can happen next.
    fn nexts(&self, bounds: &Bounds) -> Vec<(Step, Result<World, String>)> {
        let mut nexts = Vec::new();
        let mut push = |step: Step, next: World, checked: Result<(), String>| nexts.push((step, checked.map(|()| next)));
        for index in 0..self.actors.len() {
            self.steps_of(index, bounds, &mut push);
        }
        for index in 0..self.late.len() {
            let mut next = self.clone();
            let entry = next.late.remove(index);
            let checked = next.put(&entry).map(|_| ());
            push(format!("a late put of {} by W{} takes effect", entry.number, entry.by.nonce - 1), next, checked);
        }
        if let Some((pen, doing)) = &self.reader {
            let mut next = self.clone();
            let mut pen = pen.clone();
            let (step, checked) = match doing {
                Doing::Waiting(ask) => {
                    let step = format!("R: {}", name(ask));
                    let answered = next.carry_out(ask).map(|answer| pen.answer(answer));
                    let checked = answered.and_then(|answered| match answered {
                        Next::Ask(ask) => {
                            next.reader = Some((pen, Doing::Waiting(ask)));
                            Ok(())
                        }
                        _ => {
                            next.reader = Some((pen.clone(), Doing::Nothing));
                            next.check("R", &pen)
                        }
                    });
                    (step, checked)
                }
                _ => {
                    let ask = pen.reload();
                    next.reader = Some((pen, Doing::Waiting(ask)));
                    ("R reads".to_owned(), Ok(()))
                }
            };
            push(step, next, checked);
        }
        nexts
    }

    fn steps_of(&self, index: usize, bounds: &Bounds, push: &mut impl FnMut(Step, World, Result<(), String>)) {
        let actor = &self.actors[index];
        let by: Writer = actor.pen.by();
        let with = |doing: Doing, pen: Pen, puts: u8| {
            let mut next = self.clone();
            next.actors[index] = Actor { pen, doing, puts };
            next
        };
        match &actor.doing {
            Doing::Waiting(ask) => {
                let mut next = self.clone();
                let checked = next.answered(index, ask);
                push(format!("W{index}: {}", name(ask)), next, checked);
                if let Ask::Put(entry) = ask
                    && self.losses < bounds.losses
                {
                    for takes_effect in [true, false] {
                        let mut next = self.clone();
                        next.losses += 1;
                        next.actors[index].pen.lost_answer();
                        next.actors[index].doing = Doing::Nothing;
                        let checked = if takes_effect {
                            next.put(entry).map(|_| ())
                        } else {
                            next.late.push(Arc::clone(entry));
                            next.late.sort_by_key(|entry| (entry.number, entry.by.nonce));
                            Ok(())
                        };
                        push(format!("W{index}: {}, answer lost, took effect: {takes_effect}", name(ask)), next, checked);
                    }
                }
            }
            Doing::Deleting(numbers) => {
                for number in numbers {
                    let mut left = numbers.clone();
                    left.remove(number);
                    let doing = if left.is_empty() { Doing::Nothing } else { Doing::Deleting(left) };
                    let mut next = with(doing, actor.pen.clone(), actor.puts);
                    next.entries.remove(number);
                    push(format!("W{index} deletes {number}"), next, Ok(()));
                }
            }
            Doing::Nothing | Doing::Deciding => {
                let mut pen = actor.pen.clone();
                if let Some(ask) = pen.settle() {
                    push(format!("W{index} settles"), with(Doing::Waiting(ask), pen, actor.puts), Ok(()));
                    return;
                }
                let may_put = actor.puts < bounds.puts && pen.number() < bounds.number_max;
                if matches!(actor.doing, Doing::Nothing) && may_put {
                    let mut pen = actor.pen.clone();
                    let ask = pen.reload();
                    push(format!("W{index} reads"), with(Doing::Waiting(ask), pen, actor.puts), Ok(()));
                }
                let state = Arc::clone(pen.state());
                if matches!(actor.doing, Doing::Deciding) && may_put {
                    match pen.append(begun(&state)) {
                        Ok(ask) => push(format!("W{index} leads"), with(Doing::Waiting(ask), pen, actor.puts + 1), Ok(())),
                        Err(refusal) => push(format!("W{index} leads"), self.clone(), Err(format!("{refusal:?}"))),
                    }
                    return;
                }
                if pen.is_behind() {
                    return;
                }
                if state.leader == Some(by) && may_put {
                    let mut pen = actor.pen.clone();
                    if let Ok(ask) = pen.append(completed(&state, by, 1)) {
                        push(format!("W{index} completes"), with(Doing::Waiting(ask), pen, actor.puts + 1), Ok(()));
                    }
                }
                // As much as can ever be deleted, and by whoever thinks that he leads.
                let old: BTreeSet<u64> = dispensable(pen.number(), 1, &state, 1..pen.number()).into_iter().collect();
                if state.leader == Some(by) && old.iter().any(|number| self.entries.contains_key(number)) {
                    push(format!("W{index} compacts"), with(Doing::Deleting(old), actor.pen.clone(), actor.puts), Ok(()));
                }
            }
        }
    }
}

fn name(ask: &Ask) -> String {
    match ask {
        Ask::List { after } => format!("list after {after}"),
        Ask::Get(number) => format!("get {number}"),
        Ask::Put(entry) => format!("put {}", entry.number),
    }
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Looks at all states, the near ones first. Gives how many there were, and how far the history came.
///
/// # Panics
/// With the steps that lead there, where a number was given twice.
fn explore(bounds: Bounds) -> (usize, u64) {
    let first = World::new(&bounds);
    let mut seen = HashSet::from([fingerprint(&first)]);
    // Where each state came from, so that a failure can be told.
    let mut steps: Vec<(usize, Step)> = vec![(0, String::new())];
    let mut queue = VecDeque::from([(0, first)]);
    let mut longest = 0;
    while let Some((at, world)) = queue.pop_front() {
        for (step, next) in world.nexts(&bounds) {
            let next = next.unwrap_or_else(|what| {
                let mut path = vec![step.clone()];
                let mut from = at;
                while from != 0 {
                    path.push(steps[from].1.clone());
                    from = steps[from].0;
                }
                path.reverse();
                panic!("{what}, after: {}", path.join("; "));
            });
            if seen.len() < bounds.states_max && seen.insert(fingerprint(&next)) {
                longest = longest.max(next.history.len() as u64);
                steps.push((at, step));
                queue.push_back((steps.len() - 1, next));
            }
        }
    }
    (seen.len(), longest)
}

/// So many times the states that a test run looks at.
fn thoroughness() -> usize {
    std::env::var("WEIR_LOG_STATES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

#[test]
fn s142_two_writers_whose_answers_are_lost_and_a_reader_see_one_history() {
    let bounds = Bounds { writers: 2, puts: 2, losses: 1, number_max: 4, reader: true, states_max: 60_000 * thoroughness() };
    let (states, longest) = explore(bounds);
    eprintln!("{states} states, {longest} entries");
    assert!(longest >= 3, "{longest}");
}

#[test]
fn s142_a_writer_that_is_paused_across_compactions_wins_no_number_twice() {
    let bounds = Bounds { writers: 2, puts: 3, losses: 1, number_max: 5, reader: false, states_max: 60_000 * thoroughness() };
    let (states, longest) = explore(bounds);
    eprintln!("{states} states, {longest} entries");
    assert!(longest >= 4, "{longest}");
}

#[test]
fn s142_three_writers_at_once_see_one_history() {
    let bounds = Bounds { writers: 3, puts: 2, losses: 0, number_max: 4, reader: false, states_max: 60_000 * thoroughness() };
    let (states, longest) = explore(bounds);
    eprintln!("{states} states, {longest} entries");
    assert!(longest >= 3, "{longest}");
}

/// A client of an object store that has lost an answer puts once more by itself, and finds its own entry.
#[test]
fn s142_a_number_that_is_taken_by_ones_own_entry_is_won_and_by_anothers_is_lost() {
    let bounds = Bounds { writers: 2, puts: 0, losses: 0, number_max: 0, reader: false, states_max: 0 };
    for twice in [true, false] {
        let mut world = World::new(&bounds);
        let outcomes: Vec<Outcome> = [0, 1]
            .map(|index| {
                let mut pen = world.actors[index].pen.clone();
                pen.reload();
                // Both have read the empty log.
                assert!(matches!(pen.answer(Answer::Listed(Vec::new())), Next::Done(Outcome::Read)));
                let mut ask = pen.append(begun(&Arc::clone(pen.state()))).unwrap();
                if twice && index == 0 {
                    world.carry_out(&ask).unwrap();
                }
                loop {
                    match pen.answer(world.carry_out(&ask).unwrap()) {
                        Next::Ask(next) => ask = next,
                        Next::Done(outcome) => return outcome,
                        Next::Confused => panic!("{ask:?}"),
                    }
                }
            })
            .into();
        assert_eq!(outcomes, [Outcome::Won, Outcome::Lost], "twice: {twice}");
    }
}
