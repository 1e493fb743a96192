#![allow(clippy::unwrap_used, reason = "a test may panic")]

use weir_model::ErrorNumber;

use super::*;

fn store() -> (tempfile::TempDir, ComponentStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = ComponentStore::open(folder.path());
    (folder, store)
}

/// The bytes that a name and version stand for.
fn found(store: &ComponentStore, name: &str, version: &str) -> Result<Vec<u8>, ComponentError> {
    store.bytes(store.get(name, version)?.digest)
}

/// For removals: nothing else needs the bytes.
fn unneeded(_: Digest) -> bool {
    false
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
    let (_folder, store) = store();
    let pushed = store.push(b"one", "count", "1.0.0").unwrap();
    assert_eq!(pushed, Pushed::New(digest_of(b"one")));
    let stored = store.get("count", "1.0.0").unwrap();
    assert_eq!((stored.digest, stored.size_bytes, stored.full_name().as_str()), (digest_of(b"one"), 3, "count@1.0.0"));
    assert_eq!(store.bytes(stored.digest).unwrap(), b"one");
    assert!(store.has(stored.digest) && !store.has(digest_of(b"two")));
}

#[test]
fn what_a_component_says_of_itself_is_kept_as_long_as_its_bytes() {
    let (folder, store) = store();
    let digest = store.push(b"one", "count", "1.0.0").unwrap().digest();
    assert_eq!(store.description(digest), None, "nobody has asked it");
    let said = Description { doc: "Counts.".to_owned(), ..Description::plain() };
    store.keep_description(digest, &said).unwrap();
    assert_eq!(store.description(digest), Some(said));
    fs::write(store.description_file(digest), "{}").unwrap();
    assert_eq!(store.description(digest), None, "another weir has written it");
    store.remove("count", "1.0.0", &unneeded).unwrap();
    assert_eq!(files_below(folder.path()), Vec::<PathBuf>::new());
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
    assert_eq!((refused.code, refused.kind), (ErrorNumber::VersionTaken, ComponentErrorKind::Taken));
    assert_eq!(found(&store, "count", "1.0.0").unwrap(), b"one");
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
    assert_eq!(found(&store, "count", "1.0.0").unwrap(), [u8::try_from(winner).unwrap()]);
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
    store.remove("a", "1", &unneeded).unwrap();
    assert_eq!(names(&store), ["b@1"]);
    assert_eq!(found(&store, "b", "1").unwrap(), b"same");
    store.remove("b", "1", &unneeded).unwrap();
    assert!(files_below(folder.path()).is_empty());
    assert_eq!(store.remove("b", "1", &unneeded).unwrap_err().code, ErrorNumber::NoSuchComponent);
}

#[test]
fn an_unknown_component_is_answered_with_what_there_is() {
    let (_folder, store) = store();
    let hint = |name: &str, version: &str| {
        let error = store.get(name, version).unwrap_err();
        assert_eq!((error.kind, error.code), (ComponentErrorKind::Unknown, ErrorNumber::NoSuchComponent));
        error.hint.unwrap_or_default()
    };
    assert!(hint("window", "1.0.0").starts_with("the store is empty"));
    store.push(b"1", "window", "1.0.0").unwrap();
    store.push(b"2", "window", "1.2.0").unwrap();
    assert_eq!(hint("window", "2.0.0"), "there is window in version 1.0.0, 1.2.0");
    assert_eq!(hint("widnow", "1.0.0"), "did you mean window@1.0.0 or window@1.2.0?");
    assert_eq!(hint("zzz", "1"), "there is window@1.0.0, window@1.2.0 (see `weir component ls`)");
}

#[test]
fn damage_is_noticed_and_a_push_of_the_same_bytes_repairs_it() {
    let (folder, store) = store();
    store.push(b"one", "count", "1.0.0").unwrap();
    let blob = store.blob(digest_of(b"one"));
    fs::write(&blob, b"onf").unwrap();
    assert_eq!(found(&store, "count", "1.0.0").unwrap_err().code, ErrorNumber::StoreDamaged);
    fs::remove_file(&blob).unwrap();
    assert_eq!(found(&store, "count", "1.0.0").unwrap_err().code, ErrorNumber::StoreDamaged);
    store.push(b"one", "count", "1.0.0").unwrap();
    assert_eq!(found(&store, "count", "1.0.0").unwrap(), b"one");

    fs::write(folder.path().join("components/names/count/1.0.0"), b"{").unwrap();
    assert_eq!(store.list().unwrap_err().code, ErrorNumber::StoreDamaged);
}

#[test]
fn names_that_lead_out_of_the_store_are_refused() {
    let (_folder, store) = store();
    for (name, version) in [("..", "1"), ("a/b", "1"), ("a", ".."), ("a", "../../x"), ("", "1"), ("a", ""), (".hidden", "1")] {
        assert_eq!(store.push(b"x", name, version).unwrap_err().kind, ComponentErrorKind::Unknown, "{name}@{version}");
        assert_eq!(store.get(name, version).unwrap_err().code, ErrorNumber::NoSuchComponent, "{name}@{version}");
    }
}

#[test]
fn bytes_without_a_name_stay_while_they_are_needed_or_young() {
    let (_folder, store) = store();
    let digest = store.keep(b"one").unwrap();
    assert_eq!(store.keep(b"one").unwrap(), digest);
    assert_eq!(store.bytes(digest).unwrap(), b"one");
    assert_eq!(names(&store), Vec::<String>::new());

    assert_eq!(store.sweep(Duration::from_secs(3_600), &unneeded).unwrap(), 0);
    assert_eq!(store.sweep(Duration::ZERO, &|needed| needed == digest).unwrap(), 0);
    store.push(b"one", "count", "1").unwrap();
    assert_eq!(store.sweep(Duration::ZERO, &unneeded).unwrap(), 0, "a name stands for it");
    store.remove("count", "1", &|needed| needed == digest).unwrap();
    assert!(store.has(digest));
    assert_eq!(store.sweep(Duration::ZERO, &unneeded).unwrap(), 1);
    assert!(!store.has(digest));
}

static BUNDLED: &[Bundled] = &[Bundled { name: "count", version: "1.1.0", bytes: b"bundled" }];

#[test]
fn a_bundled_component_is_copied_when_it_is_first_asked_for_and_then_never_changes() {
    let (folder, store) = store();
    let store = store.with_bundled(BUNDLED);
    assert_eq!(names(&store), ["count@1.1.0"]);
    assert_eq!(store.list().unwrap()[0].pushed_at_ms, None);
    assert!(!folder.path().join("components").exists(), "looking copies nothing");
    assert_eq!(found(&store, "count", "1.1.0").unwrap(), b"bundled");
    let newer: &'static [Bundled] = &[Bundled { name: "count", version: "1.1.0", bytes: b"newer" }];
    let newer = ComponentStore::open(folder.path()).with_bundled(newer);
    assert_eq!(found(&newer, "count", "1.1.0").unwrap(), b"bundled", "a newer program changes nothing");
    assert_eq!(names(&newer), ["count@1.1.0"]);
    let without = ComponentStore::open(folder.path());
    assert_eq!(found(&without, "count", "1.1.0").unwrap(), b"bundled");
}

#[test]
fn a_bundled_component_is_found_though_its_copy_was_deleted_and_cannot_be_removed_before_it_is_used() {
    let (folder, store) = store();
    let store = store.with_bundled(BUNDLED);
    let refused = store.remove("count", "1.1.0", &unneeded).unwrap_err();
    assert!(refused.message.contains("a part of this program"), "{refused}");
    let digest = store.get("count", "1.1.0").unwrap().digest;
    fs::remove_dir_all(folder.path().join("components/blobs")).unwrap();
    assert_eq!(store.bytes(digest).unwrap(), b"bundled");
    store.remove("count", "1.1.0", &unneeded).unwrap();
    assert_eq!(store.list().unwrap()[0].pushed_at_ms, None);
}

#[test]
fn what_is_pushed_goes_before_what_is_bundled() {
    let (_folder, store) = store();
    store.push(b"mine", "count", "1.1.0").unwrap();
    let store = store.with_bundled(BUNDLED);
    assert_eq!(found(&store, "count", "1.1.0").unwrap(), b"mine");
    let missing = store.get("count", "1.0.0").unwrap_err();
    assert!(missing.hint.unwrap().contains("there is count in version 1.1.0"));
}
