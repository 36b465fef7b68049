//! One execution, whichever engine carries it: validated input, ordered frames, one outcome, one way to stop.

pub mod clock;
pub mod frame;
pub mod outcome;
pub mod permissions;
pub mod place;
pub mod ports;
pub mod sink;
pub mod spec;

mod engine;
mod fold;
mod runs;

pub use fold::fold;
pub use runs::{Run, RunParts, Runs, RunsNumbers};
