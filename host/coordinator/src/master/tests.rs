//! A master alone, on a worker that answers and has no tasks.

mod back;
mod fresh;
mod watcher;
