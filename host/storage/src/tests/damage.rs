//! s40: files and manifests that are missing, cut off or changed; storage that is full, down or closed.

use std::path::PathBuf;
use std::sync::Arc;

use weir_model::CheckpointId;

use super::faults::{EACCES, EDQUOT, EIO, ENOSPC, EROFS, ESTALE, Fault, faulty};
use super::{JOB, manifest, memory, over};
use crate::log::tests::job::{Job, assert_tidy, checkpoints, manifest_of, open, restore, through};
use crate::*;

/// A job in a folder with two checkpoints that share nothing.
struct OnDisk {
    folder: tempfile::TempDir,
    storage: JobStorage,
    newest: CheckpointId,
}

impl OnDisk {
    fn new() -> OnDisk {
        let folder = tempfile::tempdir().unwrap();
        let storage = JobStorage::open(folder.path().to_str().unwrap(), JOB).unwrap();
        let mut job = Job::start(storage.clone(), 1).unwrap();
        job.checkpoint(b"older state").unwrap();
        let newest = job.checkpoint(b", newer state").unwrap();
        OnDisk { folder, storage, newest }
    }

    fn place(&self, kind: &str) -> PathBuf {
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(self.folder.path().join(JOB).join(kind)).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names.pop().unwrap()
    }

    fn place_of_oldest(&self, kind: &str) -> PathBuf {
        let names = std::fs::read_dir(self.folder.path().join(JOB).join(kind)).unwrap();
        names.map(|entry| entry.unwrap().path()).min().unwrap()
    }

    /// What a restore says, and that the older checkpoint is whole.
    fn complaint(&self) -> StorageError {
        let error = restore(&self.storage, self.newest).unwrap_err();
        let ids = checkpoints(&self.storage).unwrap();
        assert_eq!(ids, [self.newest, CheckpointId(self.newest.0 - 1)]);
        assert_eq!(restore(&self.storage, ids[1]).unwrap(), b"older state");
        error
    }
}

fn assert_names(error: &StorageError, kind: ErrorKind, place: &std::path::Path) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(place.to_str().unwrap()), "{error} should name {}", place.display());
}

#[test]
fn s40_a_missing_file_is_named_and_the_older_checkpoint_is_whole() {
    let disk = OnDisk::new();
    let place = disk.place("files");
    std::fs::remove_file(&place).unwrap();
    let error = disk.complaint();
    assert!(matches!(error, StorageError::Missing { .. }), "{error}");
    assert_names(&error, ErrorKind::Damaged, &place);
}

#[test]
fn s40_a_truncated_file_is_named() {
    let disk = OnDisk::new();
    let place = disk.place("files");
    let whole = std::fs::read(&place).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&place, &whole[..length]).unwrap();
        let error = disk.complaint();
        assert!(matches!(&error, StorageError::Damaged { reason, .. } if reason.contains("cut off")), "{error}");
        assert_names(&error, ErrorKind::Damaged, &place);
        // Without the check before it, reading notices too.
        let segment = manifest_of(&disk.storage, disk.newest).unwrap().segments().next().unwrap().clone();
        assert_names(&disk.storage.read(&segment).unwrap_err(), ErrorKind::Damaged, &place);
    }
}

#[test]
fn s40_a_flipped_bit_in_a_file_is_noticed_before_anything_uses_it() {
    let disk = OnDisk::new();
    let place = disk.place("files");
    let whole = std::fs::read(&place).unwrap();
    for position in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[position] ^= 0x10;
        std::fs::write(&place, flipped).unwrap();
        let error = disk.complaint();
        assert!(error.to_string().contains("checksum"), "{error}");
        assert_names(&error, ErrorKind::Damaged, &place);
    }
}

#[test]
fn s40_a_damaged_manifest_is_named_and_deletes_nothing() {
    let disk = OnDisk::new();
    let place = disk.place("manifests");
    let whole = std::fs::read(&place).unwrap();
    let flipped: Vec<u8> = whole.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == whole.len() / 2)).collect();
    for damaged in [&whole[..whole.len() / 2], &[], &flipped] {
        std::fs::write(&place, damaged).unwrap();
        let error = disk.complaint();
        assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
        assert_names(&error, ErrorKind::Damaged, &place);
        // A writer that never read the manifest does not know what it needs, so it keeps everything.
        let mut fresh = open(&disk.storage);
        assert_eq!(fresh.discard(vec![disk.place("files").file_name().unwrap().to_str().unwrap().to_owned()]).files, 0);
    }
    std::fs::write(&place, &whole).unwrap();
    assert_eq!(restore(&disk.storage, disk.newest).unwrap(), b"older state, newer state");
    std::fs::remove_file(&place).unwrap();
    let error = manifest_of(&disk.storage, disk.newest).unwrap_err();
    assert!(matches!(error, StorageError::Missing { .. }), "{error}");
}

#[test]
fn after_falling_back_from_a_damaged_checkpoint_the_job_goes_on() {
    let disk = OnDisk::new();
    std::fs::write(disk.place("manifests"), b"{").unwrap();
    let mut log = open(&disk.storage);
    let begun = log.begin(&[]).unwrap();
    assert_eq!(begun.skipped.iter().map(|skipped| skipped.checkpoint).collect::<Vec<_>>(), [disk.newest]);
    assert!(begun.skipped[0].reason.contains("manifests"), "{}", begun.skipped[0].reason);
    assert_eq!(begun.retract_after, Some(CheckpointId(1)));
    let mut job = Job::start(disk.storage.clone(), 1).unwrap();
    assert_eq!(job.state, b"older state");
    assert!(job.next > disk.newest, "its number is not used again");
    job.retained = 1;
    let id = job.checkpoint(b"!").unwrap();
    job.log.delete_trash();
    let last = Job::start(disk.storage.clone(), 1).unwrap();
    assert_eq!(last.state, b"older state!");
    assert_eq!(restore(&last.storage, id).unwrap(), b"older state!");
    assert_tidy(&last.storage, "also what the damaged one had");
}

#[test]
fn s40_a_damaged_entry_is_named_and_nothing_is_decided_or_deleted() {
    let disk = OnDisk::new();
    let place = disk.place("log");
    std::fs::write(&place, b"{").unwrap();
    let error = Job::start(disk.storage.clone(), 1).err().unwrap();
    assert_names(&error, ErrorKind::Damaged, &place);
    let told = error.to_string();
    assert!(!told.contains("older checkpoint") && told.contains("backup") && told.contains("another `storage`"), "{told}");
    let file = disk.place("files").file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(open(&disk.storage).discard(vec![file]), Deleted { backlog: 1, ..Deleted::default() });
    assert_eq!(std::fs::read(&place).unwrap(), b"{");
}

#[test]
fn a_folder_of_an_earlier_version_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let storage = JobStorage::open(folder.path().to_str().unwrap(), JOB).unwrap();
    std::fs::create_dir_all(folder.path().join(JOB)).unwrap();
    std::fs::write(folder.path().join(JOB).join("job.json"), b"{}").unwrap();
    for error in [storage.state().unwrap_err(), Job::start(storage, 1).err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("earlier version") && error.to_string().contains("another `storage`"), "{error}");
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    }
    assert_eq!(std::fs::read(folder.path().join(JOB).join("job.json")).unwrap(), b"{}");
}

#[test]
fn s40_a_manifest_in_the_place_of_another_is_noticed() {
    let disk = OnDisk::new();
    let newest = disk.place("manifests");
    let older = disk.place_of_oldest("manifests");
    std::fs::copy(older, &newest).unwrap();
    let error = disk.complaint();
    assert!(error.to_string().contains("holds checkpoint 1"), "{error}");
    assert_names(&error, ErrorKind::Damaged, &newest);
}

#[test]
fn a_manifest_of_an_unknown_format_is_refused_and_kept() {
    let disk = OnDisk::new();
    let mut future = serde_json::to_value(manifest_of(&disk.storage, disk.newest).unwrap()).unwrap();
    future["format"] = (MANIFEST_FORMAT + 1).into();
    future["operators"] = "of another shape".into();
    let place = disk.place("manifests");
    std::fs::write(&place, crate::document::encode(&future).unwrap()).unwrap();
    let error = disk.complaint();
    assert!(
        matches!(error, StorageError::UnknownFormat { found, supported: MANIFEST_FORMAT, .. } if found == u64::from(MANIFEST_FORMAT) + 1),
        "{error}"
    );
    assert_names(&error, ErrorKind::Configuration, &place);
    let error = Job::start(disk.storage.clone(), 1).err().unwrap();
    assert!(matches!(error, StorageError::UnknownFormat { .. }), "nobody goes back for that: {error}");
    let mut log = open(&disk.storage);
    let mut wrong = manifest_of(&disk.storage, CheckpointId(1)).unwrap();
    wrong.format = MANIFEST_FORMAT + 1;
    assert_eq!(log.complete(&Arc::new(wrong), 3).unwrap_err().kind(), ErrorKind::Bug);
}

#[test]
fn s40_a_full_disk_fails_the_checkpoint_and_loses_nothing() {
    for code in [ENOSPC, EDQUOT] {
        let store = memory();
        let faulty = faulty(&store, Fault::None);
        let storage = through(&faulty);
        let mut job = Job::start(storage.clone(), 8).unwrap();
        let first = job.checkpoint(b"a").unwrap();
        faulty.set(Fault::WritesFail(code));
        let error = job.checkpoint(b"b").unwrap_err();
        assert!(matches!(error, StorageError::Full { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(
            error.to_string().contains("memory:/pageviews/files/1-2-0-") && error.to_string().contains("free some space"),
            "{error}"
        );
        // Also in the middle of a large file.
        let mut writer = storage.writer(job.attempt, job.next, weir_model::TaskId(0));
        let large = vec![1; 40 << 20];
        let error = writer.append(&large).unwrap_err();
        assert!(matches!(error, StorageError::Full { .. }), "{error}");
        assert_eq!(writer.append(b"more").unwrap_err().kind(), ErrorKind::Bug);
        drop(writer);
        assert_eq!(checkpoints(&storage).unwrap(), [first]);
        faulty.set(Fault::None);
        let next = job.checkpoint(b"c").unwrap();
        assert_eq!(restore(&storage, next).unwrap(), b"ac");
    }
}

#[test]
fn s40_a_storage_that_is_down_says_so_and_is_used_again_when_it_is_back() {
    for (code, kind) in [
        (EIO, ErrorKind::Retry),
        (ESTALE, ErrorKind::Retry),
        (EACCES, ErrorKind::Configuration),
        (EROFS, ErrorKind::Configuration),
    ] {
        let store = memory();
        let faulty = faulty(&store, Fault::None);
        let storage = through(&faulty);
        let mut job = Job::start(storage.clone(), 8).unwrap();
        let id = job.checkpoint(b"a").unwrap();
        let known = manifest_of(&storage, id).unwrap();
        let stored = storage.state().unwrap().checkpoints[0].clone();
        faulty.set(Fault::Down(code));
        let next = Arc::new(manifest(job.attempt, CheckpointId(7), vec![], vec![]));
        let mut other = open(&storage);
        let errors = [
            storage.state().unwrap_err(),
            storage.stored_manifest(&stored).unwrap_err(),
            storage.check(&known).unwrap_err(),
            storage.read(known.segments().next().unwrap()).unwrap_err(),
            job.log.complete(&next, 3).unwrap_err(),
            job.checkpoint(b"b").unwrap_err(),
            other.begin(&[]).unwrap_err(),
            other.lead(job.attempt).unwrap_err(),
            other.newest_whole().unwrap_err(),
            other.complete(&next, 3).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("memory:/pageviews/"), "{error}");
        }
        faulty.set(Fault::None);
        let next = job.checkpoint(b"c").unwrap();
        assert_eq!(restore(&storage, next).unwrap(), b"ac");
        assert_eq!(checkpoints(&over(&store)).unwrap(), [next, id]);
    }
}

#[test]
fn a_root_that_is_no_folder_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let error = JobStorage::open(file.to_str().unwrap(), JOB).err().unwrap();
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
}
