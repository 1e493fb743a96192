//! `cargo xtask bench`.
use anyhow::Result;
pub(crate) fn main(_: &[String]) -> Result<()> {
    anyhow::bail!("none")
}
