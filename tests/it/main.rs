//! Tests through the real executable.
