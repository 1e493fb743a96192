//! s131, s99: what is not this user's own vouches for nothing, and the folder stays bounded.
#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const COMPONENT: &str = "(component)";

fn entry_of(cache: &Cache) -> PathBuf {
    cache.path.join(cache.name(COMPONENT.as_bytes()))
}

fn artefact(engine: &Engine) -> Vec<u8> {
    Component::new(engine, wat::parse_str(COMPONENT).unwrap()).unwrap().serialize().unwrap()
}

fn open(path: &Path, engine: &Engine) -> Result<Cache, Distrust> {
    Cache::try_open(path, engine).unwrap()
}

fn stored() -> (tempfile::TempDir, Engine, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::default();
    let cache = open(&folder.path().join("cache"), &engine).unwrap();
    cache.store(COMPONENT.as_bytes(), &artefact(&engine));
    (folder, engine, cache)
}

fn is_loaded(cache: &Cache, engine: &Engine) -> bool {
    cache.load(engine, COMPONENT.as_bytes()).is_some()
}

#[test]
fn an_entry_is_found_again_by_a_later_host() {
    let (_folder, engine, cache) = stored();
    let later = open(&cache.path, &engine).unwrap();
    assert!(is_loaded(&later, &engine));
    assert!(later.load(&engine, b"another").is_none());
}

#[test]
fn an_entry_changed_anywhere_is_not_trusted() {
    let (_folder, engine, cache) = stored();
    let path = entry_of(&cache);
    let good = fs::read(&path).unwrap();
    for position in [0, CODE_BYTES, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[position] ^= 1;
        fs::write(&path, &bad).unwrap();
        assert!(!is_loaded(&cache, &engine), "byte {position}");
    }
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(!is_loaded(&cache, &engine));
    fs::write(&path, &good).unwrap();
    assert!(is_loaded(&cache, &engine));
}

#[test]
fn an_entry_under_another_name_is_not_trusted() {
    let (_folder, engine, cache) = stored();
    fs::copy(entry_of(&cache), cache.path.join(cache.name(b"another"))).unwrap();
    assert!(cache.load(&engine, b"another").is_none());
}

#[test]
fn s131_a_folder_that_came_whole_with_its_key_vouches_for_nothing() {
    let (folder, engine, cache) = stored();
    // As an archive brings it: the same bytes, names and modes.
    let brought = folder.path().join("brought");
    fs::DirBuilder::new().mode(0o700).create(&brought).unwrap();
    for file in fs::read_dir(&cache.path).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, brought.join(file.file_name().unwrap())).unwrap();
    }
    let later = open(&brought, &engine).unwrap();
    assert_ne!(later.key, cache.key);
    assert!(!is_loaded(&later, &engine));
    later.store(COMPONENT.as_bytes(), &artefact(&engine));
    assert!(is_loaded(&open(&brought, &engine).unwrap(), &engine), "what it makes itself counts");
}

#[test]
fn s131_a_key_of_another_mode_type_or_with_another_name_is_not_used_and_named() {
    let (folder, engine, cache) = stored();
    let key = cache.path.join(KEY_FILE);
    let is_refused = |why: &str| {
        let distrust = open(&cache.path, &engine).err().unwrap();
        assert_eq!((distrust.path.as_path(), distrust.why), (key.as_path(), why));
        assert!(Cache::open(&cache.path, &engine).unwrap().is_none());
    };
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    is_refused("others can read or write it");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&key, folder.path().join("other name")).unwrap();
    is_refused("it has more than one name");
    fs::remove_file(&key).unwrap();
    for target in ["/proc/self/pagemap", "/dev/zero", "nowhere"] {
        symlink(target, &key).unwrap();
        is_refused("it is a link");
        fs::remove_file(&key).unwrap();
    }
    fs::create_dir(&key).unwrap();
    is_refused("it is no regular file");
    fs::remove_dir(&key).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(&key).status().unwrap();
    assert!(pipe.success());
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    is_refused("it is no regular file");
}

#[test]
fn s131_a_key_that_is_cut_short_is_made_anew() {
    let (_folder, engine, cache) = stored();
    fs::write(cache.path.join(KEY_FILE), b"short").unwrap();
    let later = open(&cache.path, &engine).unwrap();
    assert_ne!(later.key, cache.key);
    assert!(!is_loaded(&later, &engine));
}

#[test]
fn s131_entries_of_another_mode_type_or_with_another_name_are_not_loaded_and_replaced() {
    let (folder, engine, cache) = stored();
    let entry = entry_of(&cache);
    let elsewhere = folder.path().join("elsewhere");
    let spoil: [(&str, &dyn Fn()); 3] = [
        ("mode", &|| fs::set_permissions(&entry, Permissions::from_mode(0o640)).unwrap()),
        ("second name", &|| fs::hard_link(&entry, &elsewhere).unwrap()),
        ("link", &|| {
            fs::rename(&entry, &elsewhere).unwrap();
            symlink(&elsewhere, &entry).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        let _ = fs::remove_file(&elsewhere);
        spoil();
        assert!(!is_loaded(&cache, &engine), "{what}");
        cache.store(COMPONENT.as_bytes(), &artefact(&engine));
        assert!(is_loaded(&cache, &engine), "{what}: replaced");
    }
}

#[test]
fn s131_a_folder_that_others_can_write_to_or_that_is_a_link_is_no_cache() {
    let (folder, engine, cache) = stored();
    let refused = |path: &Path| {
        let Distrust { path, why } = open(path, &engine).err().unwrap();
        (path, why)
    };
    for mode in [0o720, 0o702, 0o1777] {
        fs::set_permissions(&cache.path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(refused(&cache.path), (cache.path.clone(), "others can write to it"), "{mode:o}");
    }
    fs::set_permissions(&cache.path, Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    symlink(&cache.path, &link).unwrap();
    assert_eq!(refused(&link), (link.clone(), "it is a link or no folder"));
    // Whoever can write above it can put another folder in its place.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let above = folder.path().canonicalize().unwrap();
    assert_eq!(refused(&cache.path), (above, "others can write to it"));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    assert!(open(&cache.path, &engine).is_ok(), "but not where only owners can rename");
}

#[test]
fn s131_what_belongs_to_another_user_is_not_used() {
    let (_folder, engine, cache) = stored();
    let nobody = Some(65_534);
    let key = cache.path.join(KEY_FILE);
    if std::os::unix::fs::chown(&key, nobody, None).is_err() {
        // Only root can give files away; everybody else cannot be given any either.
        assert_ne!(rustix::process::geteuid().as_raw(), 0);
        return;
    }
    assert_eq!(open(&cache.path, &engine).err().unwrap().why, "it belongs to another user");
    std::os::unix::fs::chown(&key, Some(0), None).unwrap();
    std::os::unix::fs::chown(entry_of(&cache), nobody, None).unwrap();
    assert!(!is_loaded(&cache, &engine));
    std::os::unix::fs::chown(&cache.path, nobody, None).unwrap();
    let distrust = open(&cache.path, &engine).err().unwrap();
    assert_eq!(distrust, Distrust { path: cache.path.clone(), why: "it belongs to another user" });
}

#[test]
fn s99_what_was_used_longest_ago_goes_when_the_cache_is_full() {
    let (_folder, engine, mut cache) = stored();
    let artefact = artefact(&engine);
    let size = (CODE_BYTES + artefact.len()) as u64;
    cache.bytes_max = 4 * size;
    let name = |number: usize| format!("component {number}");
    let age = |component: &[u8], seconds: i64| {
        let file = fs::File::open(cache.path.join(cache.name(component))).unwrap();
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        futimens(&file, &Timestamps { last_access: time, last_modification: time }).unwrap();
    };
    let is_there = |component: &[u8]| cache.path.join(cache.name(component)).exists();
    age(COMPONENT.as_bytes(), 1);
    for number in 0..3 {
        cache.store(name(number).as_bytes(), &artefact);
        age(name(number).as_bytes(), 2 + number as i64);
    }
    fs::write(cache.path.join("not ours"), vec![0; 9_999]).unwrap();
    assert!(is_loaded(&cache, &engine), "the oldest is used, and so becomes the newest");
    cache.store(name(3).as_bytes(), &artefact);
    assert!(is_there(COMPONENT.as_bytes()) && !is_there(name(0).as_bytes()));
    for number in 4..100 {
        cache.store(name(number).as_bytes(), &artefact);
    }
    let entries = || {
        fs::read_dir(&cache.path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| is_entry(entry.file_name().to_str().unwrap()))
    };
    assert_eq!(entries().map(|entry| entry.metadata().unwrap().len()).sum::<u64>(), 4 * size);
    assert!(cache.path.join("not ours").exists() && cache.path.join(KEY_FILE).exists());
    cache.bytes_max = size - 1;
    cache.store(b"too large", &artefact);
    assert!(!cache.path.join(cache.name(b"too large")).exists());
}
