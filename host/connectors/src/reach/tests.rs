#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::*;

struct World {
    _folder: tempfile::TempDir,
    root: PathBuf,
    reach: Reach,
}

/// `mine`, which is allowed, with a file in a folder and links to all kinds of places; and `other`, which is not.
fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (mine, other) = (root.join("mine"), root.join("other"));
    fs::create_dir_all(mine.join("in")).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::write(mine.join("in/x"), "mine").unwrap();
    fs::write(other.join("x"), "theirs").unwrap();
    symlink(&other, mine.join("out")).unwrap();
    symlink("../other/x", mine.join("file")).unwrap();
    symlink(mine.join("in"), mine.join("inner")).unwrap();
    symlink("circle", mine.join("circle")).unwrap();
    symlink(&mine, root.join("way")).unwrap();
    let reach = Reach::beneath(std::slice::from_ref(&mine)).unwrap();
    World { _folder: folder, root, reach }
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn s137_what_is_opened_lies_below_an_allowed_folder_whatever_links_say() {
    let World { root, reach, .. } = &world();
    for inside in ["mine/in/x", "mine/inner/x", "mine/in/../in/x", "way/in/x", "way/inner/x"] {
        assert_eq!(text(reach.read(&root.join(inside)).unwrap()), "mine", "{inside}");
        assert!(reach.metadata(&root.join(inside)).unwrap().is_file(), "{inside}");
    }
    for outside in ["other/x", "mine/out/x", "mine/file", "mine/../other/x", "mine/in/../../other/x", "way/file", "mine/out/new"]
    {
        let path = root.join(outside);
        for refused in [reach.read(&path).map(drop), reach.metadata(&path).map(drop)] {
            let error = refused.unwrap_err();
            let is_refused = error.kind() == io::ErrorKind::PermissionDenied && error.to_string().contains("--allow-path");
            // What is not there is nowhere.
            assert!(is_refused || outside == "mine/out/new" && error.kind() == io::ErrorKind::NotFound, "{outside}: {error}");
        }
    }
    for outside in ["other", "mine/out", "mine/..", "."] {
        assert_eq!(reach.folder(&root.join(outside)).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{outside}");
        let made = reach.make_folder(&root.join(outside).join("made"));
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{outside}");
    }
    assert!(reach.read(&root.join("mine/circle")).is_err());
    assert_eq!(fs::read_dir(root.join("other")).unwrap().count(), 1, "nothing was made");
    assert!(reach.make_folder(&root.join("way/new/deep")).is_ok() && root.join("mine/new/deep").is_dir());
    // Without a bound, links are as the user made them.
    assert_eq!(text(Reach::default().read(&root.join("mine/file")).unwrap()), "theirs");
}

#[test]
fn s137_what_is_done_in_a_folder_stays_in_it() {
    let World { root, reach, .. } = &world();
    let folder = reach.folder(&root.join("mine")).unwrap();
    for name in ["../other/x", "/etc/passwd", "..", ".", "", "in/x", "in/"] {
        let name = OsStr::new(name);
        assert!(folder.create(name).is_err() && folder.folder(name).is_err() && folder.remove(name).is_err(), "{name:?}");
        assert!(folder.size(name).is_err() && folder.make_folder(name).is_err(), "{name:?}");
        assert!(folder.rename(OsStr::new("in"), &folder, name).is_err(), "{name:?}");
    }
    // A link is no folder and no file of a sink, and nothing is made through one that leads to nothing.
    symlink(root.join("other/new"), root.join("mine/dangling")).unwrap();
    assert!(folder.folder(OsStr::new("out")).is_err() && folder.make_folder(OsStr::new("out")).is_err());
    assert!(folder.create(OsStr::new("dangling")).is_err() && folder.size(OsStr::new("file")).is_err());
    assert!(!root.join("other/new").exists());
    // What becomes of the path meanwhile does not matter.
    fs::rename(root.join("mine"), root.join("moved")).unwrap();
    symlink(root.join("other"), root.join("mine")).unwrap();
    folder.create(OsStr::new("made")).unwrap();
    assert!(root.join("moved/made").exists() && !root.join("other/made").exists());
}

#[test]
fn s137_with_and_without_openat2_the_same_is_opened() {
    let World { root, .. } = &world();
    fs::create_dir(root.join("mine/in/deep")).unwrap();
    let paths =
        ["mine", "mine/in", "mine/in/x", "mine/in/deep", "mine/in/none", "mine/in/x/y", "mine/out", "mine/out/x", "mine/file"];
    let paths = paths.map(|path| root.join(path)).into_iter().chain(["/".into(), "/proc/self/root".into()]);
    for path in paths {
        for flags in [OFlags::RDONLY, OFlags::PATH, OFlags::RDONLY | OFlags::DIRECTORY] {
            let name = |opened: Result<rustix::fd::OwnedFd, Errno>| {
                opened.map(|file| File::from(file).metadata().map(|found| std::os::unix::fs::MetadataExt::ino(&found)).unwrap())
            };
            let walked = name(unlinked::part_by_part(&path, flags | OFlags::CLOEXEC));
            match name(unlinked::at_once(&path, flags | OFlags::CLOEXEC)) {
                // This machine has no such call, and what there is instead is all there is to test.
                Err(Errno::NOSYS | Errno::PERM) => {}
                opened => assert_eq!(opened, walked, "{} {flags:?}", path.display()),
            }
            let is_link = ["out", "file", "root"].iter().any(|name| path.components().any(|part| part.as_os_str() == *name));
            assert_eq!(walked == Err(Errno::LOOP), is_link, "{}: {walked:?}", path.display());
        }
    }
}

/// Says that a race is over when it goes out of scope.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While a thread exchanges a folder and a link to elsewhere, whoever opens gets the one or nothing.
#[test]
fn s137_a_link_that_comes_and_goes_while_files_are_opened_leads_nowhere() {
    let World { root, reach, .. } = &world();
    let (mine, is_over) = (root.join("mine"), AtomicBool::new(false));
    // Not an absolute one: those the kernel refuses for another reason.
    symlink("../other", mine.join("swapped")).unwrap();
    fs::create_dir(mine.join("now")).unwrap();
    fs::write(mine.join("now/x"), "mine").unwrap();
    let (now, swapped) = (mine.join("now"), mine.join("swapped"));
    let exchange = || {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, &now, CWD, &swapped, RenameFlags::EXCHANGE).unwrap();
    };
    let (mut opened, mut refused, mut made) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange();
            }
        });
        // Also where something is found.
        let _over = Over(&is_over);
        let deadline = Instant::now() + Duration::from_secs(60);
        while (opened < 2_000 || refused < 500 || made < 500) && Instant::now() < deadline {
            match reach.read(&now.join("x")) {
                Ok(file) => {
                    assert_eq!(text(file), "mine", "never what lies elsewhere");
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
            if let Ok(folder) = reach.make_folder(&now.join("sub")) {
                folder.create(OsStr::new(&format!("{made}"))).unwrap();
                made += 1;
            }
        }
    });
    assert!(opened > 0 && refused > 0 && made > 0, "it was a race: {opened} opened, {refused} refused, {made} made");
    assert_eq!(fs::read_dir(root.join("other")).unwrap().count(), 1, "nothing was made elsewhere");
}
