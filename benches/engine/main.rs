//! Benchmarks through the real executable.
fn main() {}
