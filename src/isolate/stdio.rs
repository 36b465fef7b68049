//! Standard input, output and error of a run: resources 0, 1 and 2 of its isolate, and the same numbers in node's table.
//!
//! Output goes to the run's sink, input comes from what the caller sent; the daemon's own descriptors are never touched.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use deno_core::{BufMutView, BufView, OpState, ResourceHandleFd, WriteOutcome};
use deno_runtime::deno_io::FdTable;
use deno_runtime::deno_io::fs::{File, FileResource, FsError, FsResult, FsStat};

use crate::run::sink::{FrameSink, Text};

/// One end of the standard streams as deno_io wants it.
enum ScriptFile {
    Input { bytes: Vec<u8>, at: Cell<usize> },
    Output { sink: FrameSink, stream: Text },
}

/// Puts the run's three streams in place of whatever the isolate was made with.
pub(super) fn install(state: &mut OpState, sink: &FrameSink, stdin: Option<String>) {
    let files: [(i32, &str, ScriptFile); 3] = [
        (0, "stdin", ScriptFile::Input { bytes: stdin.unwrap_or_default().into_bytes(), at: Cell::new(0) }),
        (1, "stdout", ScriptFile::Output { sink: sink.clone(), stream: Text::Stdout }),
        (2, "stderr", ScriptFile::Output { sink: sink.clone(), stream: Text::Stderr }),
    ];
    for (fd, name, file) in files {
        let file: Rc<dyn File> = Rc::new(file);
        state.resource_table.replace(fd.unsigned_abs(), FileResource::new(file.clone(), name.to_owned()));
        if let Some(table) = state.try_borrow_mut::<FdTable>() {
            table.remove(fd);
            table.register(fd, file);
        }
    }
}

impl ScriptFile {
    fn take(&self, most: usize) -> FsResult<&[u8]> {
        match self {
            Self::Input { bytes, at } => {
                let start = at.get();
                let end = bytes.len().min(start.saturating_add(most));
                at.set(end);
                Ok(&bytes[start..end])
            }
            Self::Output { .. } => Err(FsError::NotSupported),
        }
    }

    fn put(&self, bytes: &[u8]) -> FsResult<()> {
        match self {
            Self::Output { sink, stream } => {
                sink.write(*stream, bytes);
                Ok(())
            }
            Self::Input { .. } => Err(FsError::NotSupported),
        }
    }

    fn read_into(&self, buffer: &mut [u8]) -> FsResult<usize> {
        let bytes = self.take(buffer.len())?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

/// The methods that make no sense for a stream: all of them say so.
macro_rules! not_supported {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(self: Rc<Self> $(, $arg: $type)*) -> FsResult<$out> {
            $(let _ = $arg;)*
            Err(FsError::NotSupported)
        })*
    };
}

#[async_trait::async_trait(?Send)]
impl File for ScriptFile {
    fn maybe_path(&self) -> Option<&Path> {
        None
    }

    fn read_sync(self: Rc<Self>, buf: &mut [u8]) -> FsResult<usize> {
        self.read_into(buf)
    }

    async fn read_byob(self: Rc<Self>, mut buf: BufMutView) -> FsResult<(usize, BufMutView)> {
        let read = self.read_into(&mut buf)?;
        Ok((read, buf))
    }

    fn write_sync(self: Rc<Self>, buf: &[u8]) -> FsResult<usize> {
        self.put(buf)?;
        Ok(buf.len())
    }

    async fn write(self: Rc<Self>, buf: BufView) -> FsResult<WriteOutcome> {
        self.put(&buf)?;
        Ok(WriteOutcome::Full { nwritten: buf.len() })
    }

    fn write_all_sync(self: Rc<Self>, buf: &[u8]) -> FsResult<()> {
        self.put(buf)
    }

    async fn write_all(self: Rc<Self>, buf: BufView) -> FsResult<()> {
        self.put(&buf)
    }

    fn read_all_sync(self: Rc<Self>) -> FsResult<Cow<'static, [u8]>> {
        Ok(self.take(usize::MAX)?.to_vec().into())
    }

    async fn read_all_async(self: Rc<Self>) -> FsResult<Cow<'static, [u8]>> {
        self.read_all_sync()
    }

    async fn chmod_async(self: Rc<Self>, _mode: u32) -> FsResult<()> {
        Err(FsError::NotSupported)
    }

    async fn chown_async(self: Rc<Self>, _uid: Option<u32>, _gid: Option<u32>) -> FsResult<()> {
        Err(FsError::NotSupported)
    }

    async fn seek_async(self: Rc<Self>, _pos: io::SeekFrom) -> FsResult<u64> {
        Err(FsError::NotSupported)
    }

    async fn datasync_async(self: Rc<Self>) -> FsResult<()> {
        Ok(())
    }

    async fn sync_async(self: Rc<Self>) -> FsResult<()> {
        Ok(())
    }

    fn datasync_sync(self: Rc<Self>) -> FsResult<()> {
        Ok(())
    }

    fn sync_sync(self: Rc<Self>) -> FsResult<()> {
        Ok(())
    }

    async fn stat_async(self: Rc<Self>) -> FsResult<FsStat> {
        Err(FsError::NotSupported)
    }

    async fn lock_async(self: Rc<Self>, _exclusive: bool) -> FsResult<()> {
        Err(FsError::NotSupported)
    }

    async fn try_lock_async(self: Rc<Self>, _exclusive: bool) -> FsResult<bool> {
        Err(FsError::NotSupported)
    }

    async fn unlock_async(self: Rc<Self>) -> FsResult<()> {
        Err(FsError::NotSupported)
    }

    async fn truncate_async(self: Rc<Self>, _len: u64) -> FsResult<()> {
        Err(FsError::NotSupported)
    }

    async fn utime_async(
        self: Rc<Self>,
        _atime_secs: i64,
        _atime_nanos: u32,
        _mtime_secs: i64,
        _mtime_nanos: u32,
    ) -> FsResult<()> {
        Err(FsError::NotSupported)
    }

    async fn read_at_async(self: Rc<Self>, _buf: BufMutView, _position: u64) -> FsResult<(usize, BufMutView)> {
        Err(FsError::NotSupported)
    }

    fn read_at_sync(self: Rc<Self>, _buf: &mut [u8], _position: u64) -> FsResult<usize> {
        Err(FsError::NotSupported)
    }

    fn write_at_sync(self: Rc<Self>, _buf: &[u8], _position: u64) -> FsResult<usize> {
        Err(FsError::NotSupported)
    }

    not_supported! {
        chmod_sync(mode: u32) -> ();
        chown_sync(uid: Option<u32>, gid: Option<u32>) -> ();
        seek_sync(pos: io::SeekFrom) -> u64;
        stat_sync() -> FsStat;
        lock_sync(exclusive: bool) -> ();
        try_lock_sync(exclusive: bool) -> bool;
        unlock_sync() -> ();
        truncate_sync(len: u64) -> ();
        utime_sync(atime_secs: i64, atime_nanos: u32, mtime_secs: i64, mtime_nanos: u32) -> ();
    }

    /// A child process that is to inherit a standard stream gets none.
    fn as_stdio(self: Rc<Self>) -> FsResult<std::process::Stdio> {
        Ok(std::process::Stdio::null())
    }

    fn backing_fd(self: Rc<Self>) -> Option<ResourceHandleFd> {
        None
    }

    fn try_clone_inner(self: Rc<Self>) -> FsResult<Rc<dyn File>> {
        Ok(self)
    }
}
