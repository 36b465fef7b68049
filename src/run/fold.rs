//! Folds the frames of a run into its structured document (SPEC 5.1).

use super::frame::Frame;
use super::sink::FrameStream;
use crate::api::{ExecDocument, LogRecord};

/// Reads a stream to its end.
pub async fn fold(run_id: &str, mut frames: FrameStream) -> ExecDocument {
    let mut document = ExecDocument { run_id: run_id.to_owned(), ..ExecDocument::default() };
    while let Some(frame) = frames.next().await {
        match frame {
            Frame::Start { runtime, .. } => document.runtime = runtime,
            Frame::Log { level, message, attrs } => document.logs.push(LogRecord { level, message, attrs }),
            Frame::Emit { value } => document.emits.push(value),
            Frame::Stdout { text } => document.stdout.push_str(&text),
            Frame::Stderr { text } => document.stderr.push_str(&text),
            Frame::Artifact { artifact } => document.artifacts.push(artifact),
            Frame::Result { value } => document.result = Some(value),
            Frame::Error { error } => document.error = Some(error),
            Frame::End(end) => {
                document.exit_code = end.exit_code;
                document.duration_ms = end.duration_ms;
                document.timed_out = end.timed_out;
                document.truncated = end.truncated;
                document.retired = end.retired;
                document.timings = end.timings;
            }
        }
    }
    // A script that returned nothing but printed one JSON text meant that.
    if document.result.is_none() && document.error.is_none() {
        document.result = serde_json::from_str(document.stdout.trim()).ok();
    }
    document
}
