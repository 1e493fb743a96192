//! A whole coordinator with workers that only say what workers say.

mod disk;
mod epochs;
mod fakes;
mod foreign;
mod hangs;
mod requests;
mod restarts;
mod tokens;
mod wishes;
mod workers;
