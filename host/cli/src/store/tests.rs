#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

fn store() -> (tempfile::TempDir, ComponentStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = ComponentStore::open(folder.path());
    (folder, store)
}

fn named(name: &str, version: &str) -> ComponentRef {
    ComponentRef::Named { name: name.to_owned(), version: version.to_owned() }
}

fn names(store: &ComponentStore) -> Vec<String> {
    store.list().unwrap().iter().map(|stored| format!("{}@{}", stored.name, stored.version)).collect()
}

/// Paths of all files below the folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn what_was_pushed_is_found_by_name_with_its_digest() {
    let (folder, store) = store();
    let pushed = store.push(b"one", "count", "1.0.0").unwrap();
    assert_eq!(pushed, Pushed::New(digest_of(b"one")));
    let found = store.resolve(&named("count", "1.0.0"), folder.path()).unwrap();
    assert_eq!((found.bytes.as_slice(), found.digest, found.name.as_str()), (&b"one"[..], digest_of(b"one"), "count@1.0.0"));
}

#[test]
fn a_digest_is_the_sha_256_of_the_bytes() {
    assert_eq!(digest_of(b"abc").to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn a_version_never_stands_for_other_bytes() {
    let (folder, store) = store();
    store.push(b"one", "count", "1.0.0").unwrap();
    assert_eq!(store.push(b"one", "count", "1.0.0").unwrap(), Pushed::AlreadyThere(digest_of(b"one")));
    let refused = store.push(b"two", "count", "1.0.0").unwrap_err();
    assert_eq!((refused.number, refused.exit), ("E0021", Exit::Refused));
    assert_eq!(store.resolve(&named("count", "1.0.0"), folder.path()).unwrap().bytes, b"one");
    let blobs = files_below(&folder.path().join("components/blobs"));
    assert_eq!(blobs.len(), 1, "refused bytes are not kept: {blobs:?}");
}

#[test]
fn of_many_that_push_different_bytes_at_once_one_wins() {
    let (folder, store) = store();
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let push = |content: u8| {
            let store = store.clone();
            scope.spawn(move || store.push(&[content], "count", "1.0.0").is_ok())
        };
        let threads: Vec<_> = (0..8).map(push).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|won| **won).count(), 1);
    let winner = outcomes.iter().position(|won| *won).unwrap();
    assert_eq!(store.resolve(&named("count", "1.0.0"), folder.path()).unwrap().bytes, [u8::try_from(winner).unwrap()]);
    let left: Vec<_> = files_below(folder.path()).into_iter().filter(|path| path.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn lists_in_order_of_name_and_version() {
    let (_folder, store) = store();
    assert_eq!(names(&store), Vec::<String>::new());
    for version in ["1.10.0", "1.9.0", "1.9.0-beta"] {
        store.push(b"w", "window", version).unwrap();
    }
    store.push(b"c", "count", "2").unwrap();
    assert_eq!(names(&store), ["count@2", "window@1.9.0", "window@1.9.0-beta", "window@1.10.0"]);
}

#[test]
fn removing_forgets_the_name_and_bytes_that_no_other_name_stands_for() {
    let (folder, store) = store();
    store.push(b"same", "a", "1").unwrap();
    store.push(b"same", "b", "1").unwrap();
    store.remove("a", "1").unwrap();
    assert_eq!(names(&store), ["b@1"]);
    assert_eq!(store.resolve(&named("b", "1"), folder.path()).unwrap().bytes, b"same");
    store.remove("b", "1").unwrap();
    assert!(files_below(folder.path()).is_empty());
    assert_eq!(store.remove("b", "1").unwrap_err().number, "E0020");
}

#[test]
fn an_unknown_component_is_answered_with_what_there_is() {
    let (folder, store) = store();
    let hint = |name: &str, version: &str| {
        let failure = store.resolve(&named(name, version), folder.path()).err().unwrap();
        assert_eq!(failure.number, "E0020");
        failure.hint.unwrap_or_default()
    };
    assert!(hint("window", "1.0.0").starts_with("the store is empty"));
    store.push(b"1", "window", "1.0.0").unwrap();
    store.push(b"2", "window", "1.1.0").unwrap();
    assert_eq!(hint("window", "2.0.0"), "there is window in version 1.0.0, 1.1.0");
    assert_eq!(hint("widnow", "1.0.0"), "did you mean window@1.0.0 or window@1.1.0?");
    assert_eq!(hint("zzz", "1"), "there is window@1.0.0, window@1.1.0 (see `weir component ls`)");
}

#[test]
fn damage_is_noticed_and_a_push_of_the_same_bytes_repairs_it() {
    let (folder, store) = store();
    store.push(b"one", "count", "1.0.0").unwrap();
    let blob = store.blob(&digest_of(b"one").to_string());
    fs::write(&blob, b"onf").unwrap();
    assert_eq!(store.resolve(&named("count", "1.0.0"), folder.path()).err().unwrap().number, "E0025");
    fs::remove_file(&blob).unwrap();
    assert_eq!(store.resolve(&named("count", "1.0.0"), folder.path()).err().unwrap().number, "E0025");
    store.push(b"one", "count", "1.0.0").unwrap();
    assert_eq!(store.resolve(&named("count", "1.0.0"), folder.path()).unwrap().bytes, b"one");

    fs::write(folder.path().join("components/names/count/1.0.0"), b"{").unwrap();
    assert_eq!(store.list().unwrap_err().number, "E0025");
}

#[test]
fn names_that_lead_out_of_the_store_are_refused() {
    let (_folder, store) = store();
    for (name, version) in [("..", "1"), ("a/b", "1"), ("a", ".."), ("a", "../../x"), ("", "1"), ("a", ""), (".hidden", "1")] {
        assert_eq!(store.push(b"x", name, version).unwrap_err().exit, Exit::Usage, "{name}@{version}");
        assert_eq!(store.get(name, version).unwrap_err().number, "E0020", "{name}@{version}");
    }
}

#[test]
fn a_path_counts_from_the_job_files_folder() {
    let (folder, store) = store();
    fs::write(folder.path().join("op.wasm"), b"op").unwrap();
    let found = store.resolve(&ComponentRef::Path("op.wasm".to_owned()), folder.path()).unwrap();
    assert_eq!((found.bytes.as_slice(), found.name.as_str()), (&b"op"[..], "op.wasm"));
    let failure = store.resolve(&ComponentRef::Path("opp.wasm".to_owned()), folder.path()).err().unwrap();
    assert!(failure.hint.as_ref().is_some_and(|hint| hint.ends_with("op.wasm?")), "{failure:?}");
}
