//! What the engine costs, against competitors in the same run on the same machine. Prints Markdown; nothing is asserted.
//!
//! `./mcpx-dev bench engine [exec|calls|artifacts|memory]...` runs all of it, or the parts named. The machine's own noise is measured
//! beside it, because a figure without it says little.
//!
//! | constant | value | unit |
//! |---|---|---|
//! | requests of one latency row | 300 | requests |
//! | pause between paced requests | 20 | ms |
//! | spawns of another runtime | 30 | processes |
//! | tool calls in one run | 10,000 | calls |
//! | runs of the leak check | 2,000 | runs |

mod artifacts;
mod calls;
mod daemon;
mod exec;
mod memory;
mod noop;
mod stats;

use std::process::ExitCode;

/// What a benchmark fails with; the text is for the person who ran it.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A part measures and prints.
type Part = fn() -> Result<(), Failure>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.iter().any(|word| word == noop::FLAG) {
        noop::serve();
        return ExitCode::SUCCESS;
    }
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let parts: [(&str, Part); 4] =
        [("exec", exec::run), ("calls", calls::run), ("artifacts", artifacts::run), ("memory", memory::run)];
    stats::say(&format!("mcpx {}, {} cores, {}\n", env!("CARGO_PKG_VERSION"), stats::cores(), stats::noise()));
    for (part, run) in parts {
        if wanted(part)
            && let Err(failure) = run()
        {
            stats::say(&format!("{part}: {failure}"));
            return ExitCode::FAILURE;
        }
    }
    stats::say(&format!("\nat the end: {}", stats::noise()));
    ExitCode::SUCCESS
}
