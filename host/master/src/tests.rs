//! Tables: what a master does in each of its phases.

mod fits;
