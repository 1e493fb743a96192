//! Aggregates the rows of each key over windows of event time. See README.md for its configuration.
//!
//! A window's result is sent when the watermark reaches its end, and again for each row that comes within the allowed
//! lateness after that. A row that comes later goes to port 1 as it is.

mod config;
mod panes;
mod sessions;
#[cfg(test)]
mod tests;
mod totals;

use weir_sdk::prelude::*;

pub use config::Config;
use config::{Aggregate, Plan, Shape};
use panes::Panes;
use sessions::Sessions;
use totals::{Numbers, Rows};

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
}

impl Operator for Window {
    type Config = Config;

    fn open(config: Config, _: &Context) -> Result<Window, Error> {
        let plan = config.check()?;
        let rows_only = plan.aggregates.iter().all(|&aggregate| aggregate == Aggregate::Count);
        let store = match (plan.shape, rows_only) {
            (Shape::Fixed(_), true) => Store::RowsInPanes(Panes::default()),
            (Shape::Fixed(_), false) => Store::NumbersInPanes(Panes::default()),
            (Shape::Session { .. }, true) => Store::RowsInSessions(Sessions::default()),
            (Shape::Session { .. }, false) => Store::NumbersInSessions(Sessions::default()),
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
        }
    }
}

impl State {
    /// State that was saved under another configuration must not be read under this one.
    fn check(&self, plan: &Plan) -> Result<(), Error> {
        let rows_only = matches!(self.store, Store::RowsInPanes(_) | Store::RowsInSessions(_));
        if self.shape == plan.shape && rows_only == plan.field.is_none() {
            return Ok(());
        }
        Err(Error::fail(
            "the loaded state belongs to other windows than config.kind, size, slide, gap and aggregate describe; \
             keep them as they were, or start without the state",
        ))
    }
}

weir_sdk::export!(Window, portable = state);
