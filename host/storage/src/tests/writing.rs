//! Files: streams, sizes, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use weir_model::{Attempt, CheckpointId, TaskId};

use super::{JOB, files, memory, over};
use crate::*;

const MIB: usize = 1 << 20;

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

#[test]
fn segments_of_every_size_are_read_back_as_written() {
    let folder = tempfile::tempdir().unwrap();
    for storage in [over(&memory()), JobStorage::open(folder.path().to_str().unwrap(), "größe / b").unwrap()] {
        let (attempt, id) = (Attempt(1), CheckpointId(1));
        for sizes in [vec![], vec![0], vec![5], vec![8 * MIB], vec![3, 0, 8 * MIB - 3, 1], vec![1, 20 * MIB, 7, 9 * MIB]] {
            let mut writer = storage.writer(attempt, id, TaskId(3));
            let payloads: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, *size as u64)).collect();
            let segments: Vec<Segment> = payloads.iter().map(|payload| writer.append(payload).unwrap()).collect();
            assert!(!files(&storage).contains(writer.name()), "nothing is visible before the end");
            let name = writer.name().to_owned();
            let file = writer.finish().unwrap();
            assert_eq!(file, StoredFile { name: name.clone(), bytes: sizes.iter().sum::<usize>() as u64 });
            assert!(files(&storage).contains(&name));
            for (segment, payload) in segments.iter().zip(&payloads) {
                assert_eq!(segment.file, name);
                assert!(storage.read(segment).unwrap() == *payload, "{sizes:?}");
            }
        }
    }
}

#[test]
fn a_payload_in_pieces_is_one_segment_like_the_same_bytes_in_one() {
    let storage = over(&memory());
    let payload = noise(9 * MIB, 5);
    // Pieces end before, at and behind the end of a part, and some are empty.
    for cuts in [[0, 0], [1, 7], [8 * MIB - 10, 8 * MIB - 10], [8 * MIB, 9 * MIB], [100, 8 * MIB + 1]] {
        let mut writer = storage.writer(Attempt(1), CheckpointId(1), TaskId(3));
        writer.append(b"before").unwrap();
        let pieces = [&payload[..cuts[0]], &payload[cuts[0]..cuts[1]], &payload[cuts[1]..]];
        let in_pieces = writer.append_pieces(&pieces).unwrap();
        let in_one = writer.append(&payload).unwrap();
        assert_eq!(
            (in_pieces.offset, in_pieces.length, &in_pieces.checksum),
            (6, payload.len() as u64, &in_one.checksum),
            "{cuts:?}"
        );
        writer.finish().unwrap();
        assert!(storage.read(&in_pieces).unwrap() == payload && storage.read(&in_one).unwrap() == payload, "{cuts:?}");
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let storage = JobStorage::open(folder.path().to_str().unwrap(), JOB).unwrap();
    let attempt = Attempt(1);
    for size in [10, 30 * MIB] {
        let mut writer = storage.writer(attempt, CheckpointId(1), TaskId(0));
        writer.append(&vec![7; size]).unwrap();
        drop(writer);
    }
    let left: Vec<_> = std::fs::read_dir(folder.path().join(JOB).join("files")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn many_threads_write_and_read_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let storage = JobStorage::open(folder.path().to_str().unwrap(), JOB).unwrap();
    let attempt = Attempt(1);
    let names: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|task| {
                let storage = storage.clone();
                scope.spawn(move || {
                    let payload = noise(10 * MIB + task, task as u64);
                    let mut writer = storage.writer(attempt, CheckpointId(1), TaskId(0));
                    let segment = writer.append(&payload).unwrap();
                    let file = writer.finish().unwrap();
                    assert!(storage.read(&segment).unwrap() == payload);
                    file.name
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(names.into_iter().collect::<std::collections::BTreeSet<_>>(), files(&storage));
}

#[test]
fn a_snapshot_of_a_gigabyte_is_written_in_bounded_memory() {
    const PIECES: usize = 205;
    const PART: usize = 8 * MIB;
    let store = Arc::new(Counting::default());
    let storage = JobStorage::with_store(store.clone(), "counting:", JOB).unwrap();
    let appended = AtomicBool::new(false);
    let file = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = storage.writer(Attempt(1), CheckpointId(1), TaskId(0));
            let payload = vec![1; 5 * MIB];
            for _ in 0..PIECES {
                writer.append(&payload).unwrap();
            }
            appended.store(true, Ordering::SeqCst);
            writer.finish().unwrap()
        });
        // No part arrives before the writer cannot go on: it has to wait, however slow the storage is.
        while !appended.load(Ordering::SeqCst) && !writing.is_finished() {
            if store.held.lock().now >= 2 * PART && store.arrivals.available_permits() == 0 {
                store.arrivals.add_permits(1);
            }
            std::thread::yield_now();
        }
        store.arrivals.add_permits(PIECES);
        writing.join().unwrap()
    });
    assert_eq!(file.bytes, (PIECES * 5 * MIB) as u64);
    let held = store.held.lock();
    assert_eq!(held.total, PIECES * 5 * MIB);
    assert!(held.most <= 2 * PART, "{} bytes were on their way at once", held.most);
}

/// A store that counts what it is given, and lets it arrive one part for each permit.
#[derive(Debug)]
struct Counting {
    held: Arc<Mutex<Held>>,
    arrivals: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Held {
    now: usize,
    most: usize,
    total: usize,
}

#[derive(Debug)]
struct CountingUpload {
    held: Arc<Mutex<Held>>,
    arrivals: Arc<Semaphore>,
}

impl Default for Counting {
    fn default() -> Counting {
        Counting { held: Arc::default(), arrivals: Arc::new(Semaphore::new(0)) }
    }
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("counting")
    }
}

mod counting {
    use std::sync::Arc;

    use async_trait::async_trait;
    use futures::stream::BoxStream;
    use futures::{FutureExt, StreamExt};
    use object_store::path::Path;
    use object_store::*;

    use super::{Counting, CountingUpload};

    fn no_more<T>() -> Result<T> {
        Err(Error::NotImplemented { operation: "anything else".to_owned(), implementer: "counting".to_owned() })
    }

    #[async_trait]
    impl ObjectStore for Counting {
        async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
            no_more()
        }
        async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
            Ok(Box::new(CountingUpload { held: Arc::clone(&self.held), arrivals: Arc::clone(&self.arrivals) }))
        }
        async fn get_opts(&self, _: &Path, _: GetOptions) -> Result<GetResult> {
            no_more()
        }
        fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            futures::stream::empty().boxed()
        }
        fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            futures::stream::empty().boxed()
        }
        async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
            no_more()
        }
        async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
            no_more()
        }
    }

    #[async_trait]
    impl MultipartUpload for CountingUpload {
        fn put_part(&mut self, data: PutPayload) -> UploadPart {
            let (held, arrivals) = (Arc::clone(&self.held), Arc::clone(&self.arrivals));
            {
                let mut held = held.lock();
                held.now += data.content_length();
                held.most = held.most.max(held.now);
                held.total += data.content_length();
            }
            async move {
                arrivals.acquire().await.unwrap().forget();
                held.lock().now -= data.content_length();
                Ok(())
            }
            .boxed()
        }
        async fn complete(&mut self) -> Result<PutResult> {
            Ok(PutResult { e_tag: None, version: None, extensions: Extensions::default() })
        }
        async fn abort(&mut self) -> Result<()> {
            Ok(())
        }
    }
}
