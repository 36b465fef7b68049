//! Tests through the real executable: what goes in over the command line or the socket, and what comes out.

mod artifacts;
mod crash;
mod daemon;
mod errors;
mod http;
mod isolation;
mod requests;
mod results;
mod scripts;
mod spare;
mod stop;
mod support;
mod tidy;
mod uploads;
mod upstreams;
mod values;
