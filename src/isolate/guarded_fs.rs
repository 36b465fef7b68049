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
use std::sync::{Arc, OnceLock};

use deno_runtime::deno_fs::{FileSystem, FsDirEntry, FsFileType, FsReadDirRc, OpenOptions, RealFs};
use deno_runtime::deno_io::fs::{File, FsError, FsResult, FsStat, FsStatFs};
use deno_runtime::deno_permissions::{
    CheckedPath, CheckedPathBuf, PermissionCheckError, PermissionDeniedError, PermissionState,
};

/// Links that one path may lead through: the kernel gives up after as many.
const MOST_LINKS: usize = 40;

/// What scripts cannot reach. Every clone is the same list; it is empty until the isolate gets its job.
#[derive(Debug, Clone, Default)]
pub(super) struct ForbiddenPaths(Arc<OnceLock<Vec<PathBuf>>>);

impl ForbiddenPaths {
    /// Forbids these files and folders, with everything below them. An isolate gets one job, so only the first call counts.
    pub(super) fn set(&self, paths: Vec<PathBuf>) {
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
        // Refused only when it is set already.
        let _ = self.0.set(all);
    }

    fn list(&self) -> &[PathBuf] {
        self.0.get().map_or(&[], Vec::as_slice)
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
        if self.list().is_empty() {
            return Ok(());
        }
        self.entry(link)?;
        // A relative target counts from the folder of the link.
        self.follow(&link.parent().unwrap_or(link).join(target))
    }

    fn check(&self, path: &Path, last: Last, extent: Extent) -> FsResult<()> {
        let forbidden = self.list();
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
#[derive(Debug, Clone, Default)]
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

#[async_trait::async_trait(?Send)]
impl FileSystem for GuardedFs {
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

    fn open_sync(&self, path: &CheckedPath<'_>, options: OpenOptions) -> FsResult<Rc<dyn File>> {
        self.forbidden.follow(path)?;
        self.inner.open_sync(path, options)
    }

    async fn open_async<'a>(&'a self, path: CheckedPathBuf, options: OpenOptions) -> FsResult<Rc<dyn File>> {
        self.forbidden.follow(&path)?;
        self.inner.open_async(path, options).await
    }

    fn mkdir_sync(&self, path: &CheckedPath<'_>, recursive: bool, mode: Option<u32>) -> FsResult<()> {
        self.forbidden.follow(path)?;
        self.inner.mkdir_sync(path, recursive, mode)
    }

    async fn mkdir_async(&self, path: CheckedPathBuf, recursive: bool, mode: Option<u32>) -> FsResult<()> {
        self.forbidden.follow(&path)?;
        self.inner.mkdir_async(path, recursive, mode).await
    }

    #[cfg(unix)]
    fn chmod_sync(&self, path: &CheckedPath<'_>, mode: u32) -> FsResult<()> {
        self.forbidden.follow(path)?;
        self.inner.chmod_sync(path, mode)
    }

    #[cfg(not(unix))]
    fn chmod_sync(&self, path: &CheckedPath<'_>, mode: i32) -> FsResult<()> {
        self.forbidden.follow(path)?;
        self.inner.chmod_sync(path, mode)
    }

    #[cfg(unix)]
    async fn chmod_async(&self, path: CheckedPathBuf, mode: u32) -> FsResult<()> {
        self.forbidden.follow(&path)?;
        self.inner.chmod_async(path, mode).await
    }

    #[cfg(not(unix))]
    async fn chmod_async(&self, path: CheckedPathBuf, mode: i32) -> FsResult<()> {
        self.forbidden.follow(&path)?;
        self.inner.chmod_async(path, mode).await
    }

    fn chown_sync(&self, path: &CheckedPath<'_>, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
        self.forbidden.follow(path)?;
        self.inner.chown_sync(path, uid, gid)
    }

    async fn chown_async(&self, path: CheckedPathBuf, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
        self.forbidden.follow(&path)?;
        self.inner.chown_async(path, uid, gid).await
    }

    fn lchmod_sync(&self, path: &CheckedPath<'_>, mode: u32) -> FsResult<()> {
        self.forbidden.entry(path)?;
        self.inner.lchmod_sync(path, mode)
    }

    async fn lchmod_async(&self, path: CheckedPathBuf, mode: u32) -> FsResult<()> {
        self.forbidden.entry(&path)?;
        self.inner.lchmod_async(path, mode).await
    }

    fn lchown_sync(&self, path: &CheckedPath<'_>, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
        self.forbidden.entry(path)?;
        self.inner.lchown_sync(path, uid, gid)
    }

    async fn lchown_async(&self, path: CheckedPathBuf, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
        self.forbidden.entry(&path)?;
        self.inner.lchown_async(path, uid, gid).await
    }

    fn remove_sync(&self, path: &CheckedPath<'_>, recursive: bool) -> FsResult<()> {
        self.forbidden.tree(path)?;
        self.inner.remove_sync(path, recursive)
    }

    async fn remove_async(&self, path: CheckedPathBuf, recursive: bool) -> FsResult<()> {
        self.forbidden.tree(&path)?;
        self.inner.remove_async(path, recursive).await
    }

    fn copy_file_sync(&self, oldpath: &CheckedPath<'_>, newpath: &CheckedPath<'_>) -> FsResult<()> {
        self.copy(oldpath, newpath)?;
        self.inner.copy_file_sync(oldpath, newpath)
    }

    async fn copy_file_async(&self, oldpath: CheckedPathBuf, newpath: CheckedPathBuf) -> FsResult<()> {
        self.copy(&oldpath, &newpath)?;
        self.inner.copy_file_async(oldpath, newpath).await
    }

    fn cp_sync(&self, path: &CheckedPath<'_>, new_path: &CheckedPath<'_>) -> FsResult<()> {
        self.copy_tree(path, new_path)?;
        self.inner.cp_sync(path, new_path)
    }

    async fn cp_async(&self, path: CheckedPathBuf, new_path: CheckedPathBuf) -> FsResult<()> {
        self.copy_tree(&path, &new_path)?;
        self.inner.cp_async(path, new_path).await
    }

    fn stat_sync(&self, path: &CheckedPath<'_>) -> FsResult<FsStat> {
        self.forbidden.follow(path)?;
        self.inner.stat_sync(path)
    }

    async fn stat_async(&self, path: CheckedPathBuf) -> FsResult<FsStat> {
        self.forbidden.follow(&path)?;
        self.inner.stat_async(path).await
    }

    fn lstat_sync(&self, path: &CheckedPath<'_>) -> FsResult<FsStat> {
        self.forbidden.entry(path)?;
        self.inner.lstat_sync(path)
    }

    async fn lstat_async(&self, path: CheckedPathBuf) -> FsResult<FsStat> {
        self.forbidden.entry(&path)?;
        self.inner.lstat_async(path).await
    }

    fn statfs_sync(&self, path: &CheckedPath<'_>, bigint: bool) -> FsResult<FsStatFs> {
        self.forbidden.follow(path)?;
        self.inner.statfs_sync(path, bigint)
    }

    async fn statfs_async(&self, path: CheckedPathBuf, bigint: bool) -> FsResult<FsStatFs> {
        self.forbidden.follow(&path)?;
        self.inner.statfs_async(path, bigint).await
    }

    fn realpath_sync(&self, path: &CheckedPath<'_>) -> FsResult<PathBuf> {
        self.forbidden.follow(path)?;
        self.inner.realpath_sync(path)
    }

    async fn realpath_async(&self, path: CheckedPathBuf) -> FsResult<PathBuf> {
        self.forbidden.follow(&path)?;
        self.inner.realpath_async(path).await
    }

    fn read_dir_sync(&self, path: &CheckedPath<'_>) -> FsResult<Vec<FsDirEntry>> {
        self.forbidden.follow(path)?;
        self.inner.read_dir_sync(path)
    }

    async fn read_dir_async(&self, path: CheckedPathBuf) -> FsResult<FsReadDirRc> {
        self.forbidden.follow(&path)?;
        self.inner.read_dir_async(path).await
    }

    fn rename_sync(&self, oldpath: &CheckedPath<'_>, newpath: &CheckedPath<'_>) -> FsResult<()> {
        self.rename(oldpath, newpath)?;
        self.inner.rename_sync(oldpath, newpath)
    }

    async fn rename_async(&self, oldpath: CheckedPathBuf, newpath: CheckedPathBuf) -> FsResult<()> {
        self.rename(&oldpath, &newpath)?;
        self.inner.rename_async(oldpath, newpath).await
    }

    fn rmdir_sync(&self, path: &CheckedPath<'_>) -> FsResult<()> {
        self.forbidden.tree(path)?;
        self.inner.rmdir_sync(path)
    }

    async fn rmdir_async(&self, path: CheckedPathBuf) -> FsResult<()> {
        self.forbidden.tree(&path)?;
        self.inner.rmdir_async(path).await
    }

    fn link_sync(&self, oldpath: &CheckedPath<'_>, newpath: &CheckedPath<'_>) -> FsResult<()> {
        self.hard_link(oldpath, newpath)?;
        self.inner.link_sync(oldpath, newpath)
    }

    async fn link_async(&self, oldpath: CheckedPathBuf, newpath: CheckedPathBuf) -> FsResult<()> {
        self.hard_link(&oldpath, &newpath)?;
        self.inner.link_async(oldpath, newpath).await
    }

    fn symlink_sync(
        &self,
        oldpath: &CheckedPath<'_>,
        newpath: &CheckedPath<'_>,
        file_type: Option<FsFileType>,
    ) -> FsResult<()> {
        self.forbidden.link(oldpath, newpath)?;
        self.inner.symlink_sync(oldpath, newpath, file_type)
    }

    async fn symlink_async(
        &self,
        oldpath: CheckedPathBuf,
        newpath: CheckedPathBuf,
        file_type: Option<FsFileType>,
    ) -> FsResult<()> {
        self.forbidden.link(&oldpath, &newpath)?;
        self.inner.symlink_async(oldpath, newpath, file_type).await
    }

    fn read_link_sync(&self, path: &CheckedPath<'_>) -> FsResult<PathBuf> {
        self.forbidden.entry(path)?;
        self.inner.read_link_sync(path)
    }

    async fn read_link_async(&self, path: CheckedPathBuf) -> FsResult<PathBuf> {
        self.forbidden.entry(&path)?;
        self.inner.read_link_async(path).await
    }

    fn truncate_sync(&self, path: &CheckedPath<'_>, len: u64) -> FsResult<()> {
        self.forbidden.follow(path)?;
        self.inner.truncate_sync(path, len)
    }

    async fn truncate_async(&self, path: CheckedPathBuf, len: u64) -> FsResult<()> {
        self.forbidden.follow(&path)?;
        self.inner.truncate_async(path, len).await
    }

    fn utime_sync(
        &self,
        path: &CheckedPath<'_>,
        atime_secs: i64,
        atime_nanos: u32,
        mtime_secs: i64,
        mtime_nanos: u32,
    ) -> FsResult<()> {
        self.forbidden.follow(path)?;
        self.inner.utime_sync(path, atime_secs, atime_nanos, mtime_secs, mtime_nanos)
    }

    async fn utime_async(
        &self,
        path: CheckedPathBuf,
        atime_secs: i64,
        atime_nanos: u32,
        mtime_secs: i64,
        mtime_nanos: u32,
    ) -> FsResult<()> {
        self.forbidden.follow(&path)?;
        self.inner.utime_async(path, atime_secs, atime_nanos, mtime_secs, mtime_nanos).await
    }

    fn lutime_sync(
        &self,
        path: &CheckedPath<'_>,
        atime_secs: i64,
        atime_nanos: u32,
        mtime_secs: i64,
        mtime_nanos: u32,
    ) -> FsResult<()> {
        self.forbidden.entry(path)?;
        self.inner.lutime_sync(path, atime_secs, atime_nanos, mtime_secs, mtime_nanos)
    }

    async fn lutime_async(
        &self,
        path: CheckedPathBuf,
        atime_secs: i64,
        atime_nanos: u32,
        mtime_secs: i64,
        mtime_nanos: u32,
    ) -> FsResult<()> {
        self.forbidden.entry(&path)?;
        self.inner.lutime_async(path, atime_secs, atime_nanos, mtime_secs, mtime_nanos).await
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

    fn read_file_sync(&self, path: &CheckedPath<'_>, options: OpenOptions) -> FsResult<Cow<'static, [u8]>> {
        self.forbidden.follow(path)?;
        self.inner.read_file_sync(path, options)
    }

    async fn read_file_async<'a>(&'a self, path: CheckedPathBuf, options: OpenOptions) -> FsResult<Cow<'static, [u8]>> {
        self.forbidden.follow(&path)?;
        self.inner.read_file_async(path, options).await
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

    fn read_text_file_lossy_sync(&self, path: &CheckedPath<'_>) -> FsResult<Cow<'static, str>> {
        self.forbidden.follow(path)?;
        self.inner.read_text_file_lossy_sync(path)
    }

    async fn read_text_file_lossy_async<'a>(&'a self, path: CheckedPathBuf) -> FsResult<Cow<'static, str>> {
        self.forbidden.follow(&path)?;
        self.inner.read_text_file_lossy_async(path).await
    }
}

#[cfg(test)]
mod tests;
