//! Where paths lead, with links of every kind in the way.

use std::os::unix::fs::symlink;

use deno_error::JsErrorClass as _;

use super::*;

/// A folder with `state/secret`, which is forbidden, `open/file`, which is not, and some ways from one to the other.
struct Ground {
    folder: tempfile::TempDir,
    fs: GuardedFs,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("the test machine has a temporary folder");
        let root = folder.path();
        for (name, text) in [("state/secret", "secret"), ("open/file", "file")] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("it was joined")).expect("the folder is ours");
            std::fs::write(path, text).expect("the folder is ours");
        }
        for (target, link) in [
            ("../state/secret", "open/to-file"),
            ("../state", "open/to-folder"),
            ("to-folder", "open/to-link"),
            ("../state/new", "open/to-nothing"),
            ("loop", "open/loop"),
            ("file", "open/harmless"),
            ("../open/file", "state/way-out"),
            (".", "open/here"),
            ("state", "other-name"),
        ] {
            symlink(target, root.join(link)).expect("the folder is ours");
        }
        let fs = GuardedFs::new(ForbiddenPaths::new(vec![root.join("state"), root.join("socket")]));
        Self { folder, fs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn follows(&self, name: &str) -> bool {
        is_refused(self.fs.forbidden.follow(&self.path(name)))
    }
}

fn checked(path: &Path) -> CheckedPath<'_> {
    CheckedPath::unsafe_new(Cow::Borrowed(path))
}

/// Whether it was refused by the guard, and not by the kernel.
fn is_refused<T>(result: FsResult<T>) -> bool {
    result.is_err_and(|error| error.get_class() == "NotCapable")
}

#[test]
fn paths_that_lead_to_forbidden_places_are_refused() {
    let ground = Ground::new();
    for name in [
        "state",
        "state/",
        "state/secret",
        "state/not/there",
        "socket",
        "open/../state/secret",
        "open/to-file",
        "open/to-folder",
        "open/to-folder/secret",
        "open/to-folder/not/there",
        "open/to-link/secret",
        "open/here/here/to-link/secret",
        "open/to-nothing",
        "open/to-nothing/deeper",
        "open/to-folder/../state/secret",
        "open/not-there/../../state/secret",
        "other-name/secret",
        "other-name/way-out",
    ] {
        assert!(ground.follows(name), "{name}");
    }
}

#[test]
fn other_paths_are_not() {
    let ground = Ground::new();
    for name in [
        "",
        "open",
        "open/file",
        "open/harmless",
        "open/not/there",
        "open/file/not-a-folder",
        "open/loop",
        "open/loop/deeper",
        "open/to-folder/../open/file",
        "states",
        "state/../open/file",
    ] {
        assert!(!ground.follows(name), "{name}");
    }
}

#[test]
fn where_paths_lead() {
    let ground = Ground::new();
    // The temporary folder may be behind a link itself.
    let root = ground.folder.path().canonicalize().expect("it exists");
    for (name, last, expected) in [
        ("open/to-link/secret", Last::Followed, "state/secret"),
        ("open/to-link", Last::Followed, "state"),
        ("open/to-link", Last::AsItIs, "open/to-link"),
        ("open/to-link/", Last::AsItIs, "state"),
        ("open/to-link/.", Last::AsItIs, "state"),
        ("open/to-link/way-out", Last::AsItIs, "state/way-out"),
        ("open/to-nothing", Last::Followed, "state/new"),
        ("open/to-folder/../x/./y", Last::Followed, "x/y"),
    ] {
        let resolved = resolve(&ground.path(name), last, &[]).expect("its links can be read");
        assert_eq!(resolved, Resolved::At(root.join(expected)), "{name}");
    }
    assert_eq!(resolve(&ground.path("open/loop"), Last::Followed, &[]).expect("it can be read"), Resolved::Loop);
    let here = std::env::current_dir().expect("tests have one");
    for name in ["x/y", "./x/y", "z/../x/y"] {
        let resolved = resolve(Path::new(name), Last::Followed, &[]).expect("nothing is there");
        assert_eq!(resolved, Resolved::At(here.join("x/y")), "{name}");
    }
    assert_eq!(
        resolve(Path::new("/../.."), Last::Followed, &[]).expect("it is there"),
        Resolved::At(PathBuf::from("/"))
    );
}

#[test]
fn entries_are_not_followed_and_folders_go_with_what_is_in_them() {
    let ground = Ground::new();
    let forbidden = &ground.fs.forbidden;
    assert!(!is_refused(forbidden.entry(&ground.path("open/to-file"))));
    assert!(!is_refused(forbidden.tree(&ground.path("open/to-folder"))));
    assert!(is_refused(forbidden.entry(&ground.path("open/to-folder/secret"))));
    assert!(is_refused(forbidden.entry(&ground.path("open/to-folder/"))));
    assert!(!is_refused(forbidden.entry(ground.folder.path())));
    assert!(is_refused(forbidden.tree(ground.folder.path())));
    assert!(is_refused(ground.fs.rename_sync(&checked(ground.folder.path()), &checked(&ground.path("moved")))));
    assert!(is_refused(ground.fs.remove_sync(&checked(ground.folder.path()), true)));
    let link = ground.path("open/to-file");
    ground.fs.remove_sync(&checked(&link), false).expect("a link in an open folder");
    assert!(ground.path("state/secret").exists());
}

#[test]
fn links_into_forbidden_places_cannot_be_made() {
    let ground = Ground::new();
    for (target, link) in [("../state", "open/new"), ("file", "state/new"), ("to-link/x", "open/here/new")] {
        let (target, link) = (PathBuf::from(target), ground.path(link));
        assert!(is_refused(ground.fs.symlink_sync(&checked(&target), &checked(&link), None)), "{target:?}");
    }
    let (secret, file, new) = (ground.path("state/secret"), ground.path("open/file"), ground.path("open/new"));
    assert!(is_refused(ground.fs.link_sync(&checked(&secret), &checked(&new))));
    assert!(is_refused(ground.fs.link_sync(&checked(&ground.path("open/to-file")), &checked(&new))));
    assert!(is_refused(ground.fs.link_sync(&checked(&file), &checked(&ground.path("state/new")))));
    ground.fs.symlink_sync(&checked(Path::new("file")), &checked(&new), None).expect("an open folder");
}

#[test]
fn the_refusal_names_the_path_and_other_errors_are_the_kernels() {
    let ground = Ground::new();
    let path = ground.path("open/to-file");
    let error = ground.fs.read_file_sync(&checked(&path), OpenOptions::read()).expect_err("it is forbidden");
    assert_eq!(error.to_string(), format!("{path:?} is mcpx's own and out of reach for scripts in every profile"));
    let text = ground.fs.read_file_sync(&checked(&ground.path("open/harmless")), OpenOptions::read());
    assert_eq!(text.expect("it is open").as_ref(), b"file");
    let error = ground.fs.stat_sync(&checked(&ground.path("open/loop"))).err().expect("it is a loop");
    assert_eq!(error.into_io_error().raw_os_error(), Some(libc::ELOOP));
    // A link to a file that is not there yet must not create it.
    let options = OpenOptions::write(true, false, false, None);
    assert!(is_refused(ground.fs.write_file_sync(&checked(&ground.path("open/to-nothing")), options, b"x")));
    assert!(!ground.path("state/new").exists());
}

#[test]
fn an_empty_list_forbids_nothing_and_links_among_the_forbidden_are_resolved() {
    let ground = Ground::new();
    assert!(!is_refused(ForbiddenPaths::new(Vec::new()).follow(&ground.path("state/secret"))));
    let forbidden = ForbiddenPaths::new(vec![ground.path("other-name")]);
    assert!(is_refused(forbidden.follow(&ground.path("state/secret"))));
    assert!(is_refused(forbidden.entry(&ground.path("other-name"))));
}

#[cfg(target_os = "linux")]
#[test]
fn the_daemons_proc_is_out_of_reach_under_every_name() {
    let ground = Ground::new();
    let pid = std::process::id();
    let forbidden = ForbiddenPaths::new(vec![format!("/proc/{pid}").into()]);
    // SAFETY: it takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    // An open file without a name: what /proc says about it leads nowhere.
    let file = tempfile::tempfile().expect("the test machine has a temporary folder");
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    symlink("/proc/self", ground.path("open/self")).expect("the folder is ours");
    for path in [
        format!("/proc/{pid}/environ"),
        "/proc/self/environ".to_owned(),
        "/proc/thread-self/environ".to_owned(),
        format!("/proc/{thread}/environ"),
        format!("/proc/self/fd/{descriptor}"),
        "/dev/fd/0".to_owned(),
        "/proc/self/root/etc".to_owned(),
        ground.path("open/self/maps").to_string_lossy().into_owned(),
    ] {
        assert!(is_refused(forbidden.follow(Path::new(&path))), "{path}");
    }
    for path in ["/proc/1/stat", "/proc/meminfo", "/proc", "/dev/null"] {
        assert!(!is_refused(forbidden.follow(Path::new(path))), "{path}");
    }
}
