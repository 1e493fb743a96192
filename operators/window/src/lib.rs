//! Aggregates the rows of each key over windows of event time. See README.md for its configuration.
//!
//! A window's result is sent when the watermark reaches its end, and again for each row that comes within the allowed
//! lateness after that. A row that comes later goes to the output `late` as it is.

mod config;
mod grid;
mod panes;
mod sessions;
#[cfg(test)]
mod tests;
mod totals;

use weir_sdk::prelude::*;

pub use config::Config;
use config::{NumberKind, Plan, Shape};
use panes::Panes;
use sessions::Sessions;
use totals::{Floats, Numbers, Rows};

/// The operator.
#[derive(Debug)]
pub struct Window {
    plan: Plan,
    state: State,
}

/// What is kept, and how time was divided for it.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    shape: Shape,
    store: Store,
}

#[derive(Debug, Serialize, Deserialize)]
enum Store {
    RowsInPanes(Panes<Rows>),
    NumbersInPanes(Panes<Numbers>),
    RowsInSessions(Sessions<Rows>),
    NumbersInSessions(Sessions<Numbers>),
    FloatsInPanes(Panes<Floats>),
    FloatsInSessions(Sessions<Floats>),
}

impl Operator for Window {
    type Config = Config;

    fn describe() -> Description {
        Description::new("Aggregates the rows of each key over windows of event time")
            .keyed_output("main", "The results of a key in a window")
            .keyed_output("late", "Rows that none of their windows takes any more, as they came")
    }

    fn columns(&self, _: u32) -> Columns {
        let values = if self.plan.field.is_some() { Columns::VALUES } else { Columns::NONE };
        Columns::TIMESTAMPS | Columns::KEYS | values
    }

    fn open(config: Config, _: &Context) -> Result<Window, Error> {
        let plan = config.check()?;
        let store = match (plan.shape, plan.kept()) {
            (Shape::Fixed(_), Kept::Rows) => Store::RowsInPanes(Panes::default()),
            (Shape::Fixed(_), Kept::Numbers) => Store::NumbersInPanes(Panes::default()),
            (Shape::Fixed(_), Kept::Floats) => Store::FloatsInPanes(Panes::default()),
            (Shape::Session { .. }, Kept::Rows) => Store::RowsInSessions(Sessions::default()),
            (Shape::Session { .. }, Kept::Numbers) => Store::NumbersInSessions(Sessions::default()),
            (Shape::Session { .. }, Kept::Floats) => Store::FloatsInSessions(Sessions::default()),
        };
        let state = State { shape: plan.shape, store };
        Ok(Window { plan, state })
    }

    fn process_batch(&mut self, _: u32, rows: BatchRef<'_>, out: &mut Outputs) -> Result<(), Error> {
        let plan = &self.plan;
        self.state.check(plan)?;
        match &mut self.state.store {
            Store::RowsInPanes(panes) => panes.process(plan, rows, out),
            Store::NumbersInPanes(panes) => panes.process(plan, rows, out),
            Store::RowsInSessions(sessions) => sessions.process(plan, rows, out),
            Store::NumbersInSessions(sessions) => sessions.process(plan, rows, out),
            Store::FloatsInPanes(panes) => panes.process(plan, rows, out),
            Store::FloatsInSessions(sessions) => sessions.process(plan, rows, out),
        }
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let plan = &self.plan;
        self.state.check(plan)?;
        match &mut self.state.store {
            Store::RowsInPanes(panes) => panes.advance(plan, watermark, out),
            Store::NumbersInPanes(panes) => panes.advance(plan, watermark, out),
            Store::RowsInSessions(sessions) => sessions.advance(plan, watermark, out),
            Store::NumbersInSessions(sessions) => sessions.advance(plan, watermark, out),
            Store::FloatsInPanes(panes) => panes.advance(plan, watermark, out),
            Store::FloatsInSessions(sessions) => sessions.advance(plan, watermark, out),
        }
    }
}

/// What is kept for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Rows,
    Numbers,
    Floats,
}

impl Plan {
    fn kept(&self) -> Kept {
        match (&self.field, self.numbers) {
            (None, _) => Kept::Rows,
            (Some(_), NumberKind::Exact | NumberKind::Rounded) => Kept::Numbers,
            (Some(_), NumberKind::Float) => Kept::Floats,
        }
    }
}

impl Store {
    fn kept(&self) -> Kept {
        match self {
            Store::RowsInPanes(_) | Store::RowsInSessions(_) => Kept::Rows,
            Store::NumbersInPanes(_) | Store::NumbersInSessions(_) => Kept::Numbers,
            Store::FloatsInPanes(_) | Store::FloatsInSessions(_) => Kept::Floats,
        }
    }
}

impl State {
    /// State that was saved under another configuration must not be read under this one.
    fn check(&self, plan: &Plan) -> Result<(), Error> {
        if self.shape == plan.shape && self.store.kept() == plan.kept() {
            return Ok(());
        }
        Err(Error::fail(
            "the loaded state belongs to other windows than config.kind, size, slide, gap, aggregate and numbers describe; \
             keep them as they were, or start without the state",
        ))
    }
}

weir_sdk::export!(Window, portable = state);
