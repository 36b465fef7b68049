//! Tests through the real executable: what goes in over the command line or the socket, and what comes out.

mod errors;
mod isolation;
mod scripts;
mod stop;
mod support;
mod values;
