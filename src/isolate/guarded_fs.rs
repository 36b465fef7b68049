//! The file system of an isolate: deno_fs' own, less what is mcpx's (its state, its socket, its `/proc`), wherever a path leads.
//!
//! deno_permissions compares paths as they are written, so a denied folder can be reached through a link that stands outside of it.
//! This is the second look, at where a path ends up, right before the operation. What a run was granted is not decided here, and
//! descriptors that are already open are not looked at.
//!
//! Two things are out of its reach. What opens paths without deno_fs (unix sockets, `node:sqlite`, file watching, foreign libraries,
//! child processes) never comes here. And between the look and the operation another thread of the same user can still exchange a
//! link: only the kernel could rule that out, and deno_fs hands it paths, not descriptors.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use deno_runtime::deno_fs::{FileSystem, FsDirEntry, FsFileType, FsReadDirRc, OpenOptions, RealFs};
use deno_runtime::deno_io::fs::{File, FsError, FsResult, FsStat, FsStatFs};
use deno_runtime::deno_permissions::{
    CheckedPath, CheckedPathBuf, PermissionCheckError, PermissionDeniedError, PermissionState,
};

/// Links that one path may lead through: the kernel gives up after as many.
const MOST_LINKS: usize = 40;

/// What scripts cannot reach. Every clone is the same list.
#[derive(Debug, Clone)]
pub(super) struct ForbiddenPaths(Arc<[PathBuf]>);

impl ForbiddenPaths {
    /// Forbids these files and folders, with everything below them.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let mut all = Vec::with_capacity(2 * paths.len());
        for path in paths {
            // As written too: it may be a link, or lead through one, and whoever replaced that would replace what is behind it.
            let written = std::path::absolute(&path).unwrap_or(path);
            if let Ok(Resolved::At(real)) = resolve(&written, Last::Followed, &[])
                && real != written
            {
                all.push(real);
            }
            all.push(written);
        }
        Self(all.into())
    }

    /// Refuses a path that leads to something forbidden, for an operation that follows links.
    pub(super) fn follow(&self, path: &Path) -> FsResult<()> {
        self.check(path, Last::Followed, Extent::Itself)
    }

    /// Refuses a forbidden directory entry, for an operation on the entry and not on what it may link to.
    fn entry(&self, path: &Path) -> FsResult<()> {
        self.check(path, Last::AsItIs, Extent::Itself)
    }

    /// Refuses a directory entry that is forbidden or has something forbidden below it, for an operation that takes it away: a
    /// folder goes with all that is in it, and a link with what was reached through it.
    fn tree(&self, path: &Path) -> FsResult<()> {
        self.check(path, Last::AsItIs, Extent::Below)
    }

    /// Refuses a symbolic link that is forbidden or would lead to something forbidden.
    fn link(&self, target: &Path, link: &Path) -> FsResult<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.entry(link)?;
        // A relative target counts from the folder of the link.
        self.follow(&link.parent().unwrap_or(link).join(target))
    }

    fn check(&self, path: &Path, last: Last, extent: Extent) -> FsResult<()> {
        let forbidden = &*self.0;
        if forbidden.is_empty() {
            return Ok(());
        }
        let refused = match resolve(path, last, forbidden)? {
            Resolved::At(real) => {
                is_within(&real, forbidden)
                    || (extent == Extent::Below && forbidden.iter().any(|one| one.starts_with(&real)))
            }
            // The operation meets the same loop, and says so better.
            Resolved::Loop => false,
        };
        if refused { Err(refusal(path)) } else { Ok(()) }
    }
}

/// What an operation does with a link that is the last component of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Followed,
    AsItIs,
}

/// How much of a folder an operation concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Itself,
    Below,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
enum Resolved {
    At(PathBuf),
    Loop,
}

/// Walks a path as the kernel does: links followed, `..` taken from where they lead, names that do not exist kept as they are.
///
/// It is `canonicalize` made whole, for the same price of one `readlink` for each component. `canonicalize` gives up at a link to
/// a file that does not exist yet, which the kernel would follow to create that file. And it believes the text of `/proc`'s links
/// to open files, which can name something else than what they open: a link that stands in a forbidden place ends the walk there.
///
/// # Errors
/// A relative path without a known working directory, and failures to read a link that say nothing about what is there.
fn resolve(path: &Path, last: Last, forbidden: &[PathBuf]) -> io::Result<Resolved> {
    // Already free of links: it comes from the kernel.
    let mut real = if path.is_absolute() { PathBuf::from("/") } else { std::env::current_dir()? };
    // "link/" and "link/." mean the folder behind the link to every operation, and `components` would drop that.
    let follow_last = last == Last::Followed || names_a_folder(path);
    let mut pending: Vec<OsString> = Vec::new();
    push(&mut pending, path);
    let mut links = 0;
    while let Some(name) = pending.pop() {
        if name == OsStr::new(".") {
            continue;
        }
        if name == OsStr::new("..") {
            real.pop();
            continue;
        }
        // For "/" this starts over at the root.
        real.push(&name);
        if name == OsStr::new("/") || (pending.is_empty() && !follow_last) {
            continue;
        }
        match std::fs::read_link(&real) {
            Ok(_) if is_within(&real, forbidden) => return Ok(Resolved::At(real)),
            Ok(_) if links == MOST_LINKS => return Ok(Resolved::Loop),
            Ok(target) => {
                links += 1;
                real.pop();
                push(&mut pending, &target);
            }
            // Not a link, not there, or not to be seen (for the operation neither): a name like any other.
            Err(error) if is_no_link(error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Resolved::At(real))
}

fn is_no_link(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, PermissionDenied};
    matches!(error, InvalidInput | NotFound | NotADirectory | PermissionDenied)
}

/// Puts the components of `path` on top, the first one topmost.
fn push(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().map(|component| component.as_os_str().to_owned()));
}

fn names_a_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

/// Whether a resolved path is one of these or below one of them.
fn is_within(real: &Path, forbidden: &[PathBuf]) -> bool {
    forbidden.iter().any(|one| real.starts_with(one)) || is_own_thread(real, forbidden)
}

/// Whether a path is in the `/proc` folder of one of the daemon's threads. Each thread has one beside the process's own, with the
/// same content; it is not listed, but a script that tries numbers finds it.
fn is_own_thread(real: &Path, forbidden: &[PathBuf]) -> bool {
    let Some(name) = real.strip_prefix("/proc").ok().and_then(|rest| rest.components().next()) else { return false };
    let Some(number) = name.as_os_str().to_str().and_then(|text| text.parse::<u32>().ok()) else { return false };
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    forbidden.contains(&own) && own.join("task").join(number.to_string()).exists()
}

/// The class is `NotCapable`, as when a permission is missing. The message reaches scripts through `node:fs` only: `Deno`'s own
/// functions replace the message of every refusal that comes from a file system by the operation and its path.
fn refusal(path: &Path) -> FsError {
    FsError::PermissionCheck(PermissionCheckError::PermissionDenied(PermissionDeniedError {
        access: format!("access to {path:?}"),
        name: "read",
        custom_message: Some(format!("{path:?} is mcpx's own and out of reach for scripts in every profile")),
        state: PermissionState::Denied,
    }))
}

/// [`RealFs`] without the forbidden paths.
///
/// Paths are looked at on the isolate's thread in the asynchronous operations too: a few `readlink`s cost less than the way to
/// another thread, and a relative path means this thread's working directory.
#[derive(Debug, Clone)]
pub(super) struct GuardedFs {
    inner: RealFs,
    forbidden: ForbiddenPaths,
}

impl GuardedFs {
    pub(super) fn new(forbidden: ForbiddenPaths) -> Self {
        Self { inner: RealFs, forbidden }
    }

    /// Both ends of a copy.
    fn copy(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.forbidden.follow(from)?;
        self.forbidden.follow(to)
    }

    /// Both ends of a copy of whole folders, which does not look at links inside them before it copies into them. (Nothing in
    /// deno_runtime calls it: `node:fs` walks folders itself, one operation at a time.)
    fn copy_tree(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.copy(from, to)?;
        self.forbidden.tree(from)?;
        self.forbidden.tree(to)
    }

    fn rename(&self, from: &Path, to: &Path) -> FsResult<()> {
        self.forbidden.tree(from)?;
        self.forbidden.tree(to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> FsResult<()> {
        // The kernel links the entry itself, also when that is a symbolic link; neither may be forbidden.
        self.forbidden.entry(from)?;
        self.forbidden.follow(from)?;
        self.forbidden.entry(to)
    }
}

/// Bits of a file's mode, in the type that deno_fs takes them in.
#[cfg(unix)]
type Mode = u32;
#[cfg(not(unix))]
type Mode = i32;

/// Implements [`FileSystem`] for [`GuardedFs`]: the methods in braces as they stand, and one synchronous and one asynchronous method
/// for each row of the table behind them. A row says which look comes before the operation, so that both forms take the same:
/// `sync, async: look(paths) (further arguments) -> value;`.
macro_rules! guarded {
    (
        { $($own:tt)* }
        $($sync:ident, $async:ident: $($look:ident).+($($path:ident),+) ($($arg:ident: $ty:ty),*) -> $value:ty;)*
    ) => {
        #[async_trait::async_trait(?Send)]
        impl FileSystem for GuardedFs {
            $($own)*

            $(
                fn $sync(&self, $($path: &CheckedPath<'_>,)+ $($arg: $ty),*) -> FsResult<$value> {
                    self.$($look).+($($path),+)?;
                    self.inner.$sync($($path,)+ $($arg),*)
                }

                async fn $async(&self, $($path: CheckedPathBuf,)+ $($arg: $ty),*) -> FsResult<$value> {
                    self.$($look).+($(&$path),+)?;
                    self.inner.$async($($path,)+ $($arg),*).await
                }
            )*
        }
    };
}

guarded! {
    {
        fn cwd(&self) -> FsResult<PathBuf> {
            self.inner.cwd()
        }

        fn tmp_dir(&self) -> FsResult<PathBuf> {
            self.inner.tmp_dir()
        }

        fn chdir(&self, path: &CheckedPath<'_>) -> FsResult<()> {
            self.forbidden.follow(path)?;
            self.inner.chdir(path)
        }

        fn umask(&self, mask: Option<u32>) -> FsResult<u32> {
            self.inner.umask(mask)
        }

        fn read_dir_sync(&self, path: &CheckedPath<'_>) -> FsResult<Vec<FsDirEntry>> {
            self.forbidden.follow(path)?;
            self.inner.read_dir_sync(path)
        }

        async fn read_dir_async(&self, path: CheckedPathBuf) -> FsResult<FsReadDirRc> {
            self.forbidden.follow(&path)?;
            self.inner.read_dir_async(path).await
        }

        fn write_file_sync(&self, path: &CheckedPath<'_>, options: OpenOptions, data: &[u8]) -> FsResult<()> {
            self.forbidden.follow(path)?;
            self.inner.write_file_sync(path, options, data)
        }

        async fn write_file_async<'a>(
            &'a self,
            path: CheckedPathBuf,
            options: OpenOptions,
            data: Box<[u8]>,
        ) -> FsResult<()> {
            self.forbidden.follow(&path)?;
            self.inner.write_file_async(path, options, data).await
        }

        fn is_file_sync(&self, path: &CheckedPath<'_>) -> bool {
            self.forbidden.follow(path).is_ok() && self.inner.is_file_sync(path)
        }

        fn is_dir_sync(&self, path: &CheckedPath<'_>) -> bool {
            self.forbidden.follow(path).is_ok() && self.inner.is_dir_sync(path)
        }

        /// Has no error to refuse with: what is forbidden does not exist.
        fn exists_sync(&self, path: &CheckedPath<'_>) -> bool {
            self.forbidden.follow(path).is_ok() && self.inner.exists_sync(path)
        }

        async fn exists_async(&self, path: CheckedPathBuf) -> FsResult<bool> {
            self.forbidden.follow(&path)?;
            self.inner.exists_async(path).await
        }
    }

    open_sync, open_async: forbidden.follow(path) (options: OpenOptions) -> Rc<dyn File>;
    mkdir_sync, mkdir_async: forbidden.follow(path) (recursive: bool, mode: Option<u32>) -> ();
    chmod_sync, chmod_async: forbidden.follow(path) (mode: Mode) -> ();
    chown_sync, chown_async: forbidden.follow(path) (uid: Option<u32>, gid: Option<u32>) -> ();
    lchmod_sync, lchmod_async: forbidden.entry(path) (mode: u32) -> ();
    lchown_sync, lchown_async: forbidden.entry(path) (uid: Option<u32>, gid: Option<u32>) -> ();
    remove_sync, remove_async: forbidden.tree(path) (recursive: bool) -> ();
    copy_file_sync, copy_file_async: copy(from, to) () -> ();
    cp_sync, cp_async: copy_tree(from, to) () -> ();
    stat_sync, stat_async: forbidden.follow(path) () -> FsStat;
    lstat_sync, lstat_async: forbidden.entry(path) () -> FsStat;
    statfs_sync, statfs_async: forbidden.follow(path) (bigint: bool) -> FsStatFs;
    realpath_sync, realpath_async: forbidden.follow(path) () -> PathBuf;
    rename_sync, rename_async: rename(from, to) () -> ();
    rmdir_sync, rmdir_async: forbidden.tree(path) () -> ();
    link_sync, link_async: hard_link(from, to) () -> ();
    symlink_sync, symlink_async: forbidden.link(target, link) (file_type: Option<FsFileType>) -> ();
    read_link_sync, read_link_async: forbidden.entry(path) () -> PathBuf;
    truncate_sync, truncate_async: forbidden.follow(path) (len: u64) -> ();
    utime_sync, utime_async: forbidden.follow(path)
        (atime_secs: i64, atime_nanos: u32, mtime_secs: i64, mtime_nanos: u32) -> ();
    lutime_sync, lutime_async: forbidden.entry(path)
        (atime_secs: i64, atime_nanos: u32, mtime_secs: i64, mtime_nanos: u32) -> ();
    read_file_sync, read_file_async: forbidden.follow(path) (options: OpenOptions) -> Cow<'static, [u8]>;
    read_text_file_lossy_sync, read_text_file_lossy_async: forbidden.follow(path) () -> Cow<'static, str>;
}

#[cfg(test)]
mod tests;
