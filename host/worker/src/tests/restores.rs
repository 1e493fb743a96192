//! Tasks that run before all of their state was read: damage that shows then, and what people ask for meanwhile.

use object_store::ObjectStoreExt;
use object_store::path::Path;
use weir_coordinator::{Notice, Outcome, Wish};
use weir_storage::Segment;

use super::failures::wait;
use super::world::{JOB, World};

/// The images that the newest checkpoint has of instances, in the order of its manifest, those of each from the oldest to the newest.
fn images(world: &World) -> Vec<Vec<Segment>> {
    let storage = world.storage();
    let state = storage.state().unwrap();
    let manifest = storage.stored_manifest(state.newest().unwrap()).unwrap();
    let images = manifest.operators["count"].instances.values().map(|instance| instance.memory().to_vec());
    images.filter(|images| !images.is_empty()).collect()
}

/// From now on images are not read, whoever asks.
fn hold_images(world: &World) {
    let places = images(world).into_iter().flatten().map(|segment| (segment.file, segment.offset));
    world.store.hold_reads(places.collect());
}

#[test]
fn s112_damage_in_the_last_image_that_is_read_leads_back_and_output_is_exact() {
    let world = World::new();
    let job = &JOB.replace("\"5ms\"", "\"5ms\"\nretained = 1000");
    world.output.allow_retract();
    world.stop_half_way_and_further_on(job);
    // In the order in which lanes read what no row hurries. The newest part, so that older checkpoints are whole.
    let last = images(&world).pop().unwrap().pop().unwrap();
    let path = Path::from(format!("numbers/files/{}", last.file));
    wait(async {
        let mut bytes = world.store.inner().get(&path).await.unwrap().bytes().await.unwrap().to_vec();
        bytes[(last.offset + last.length / 2) as usize] ^= 1;
        world.store.inner().put(&path, bytes.into()).await.unwrap();
    });
    let (mut started, mut fell_back) = (None, 0);
    let outcome = world.run(job, |notice, _| match notice {
        Notice::Started { from, .. } => started = *from,
        Notice::FellBack { checkpoint, reason } => {
            assert_eq!(started, Some(*checkpoint), "its tasks ran");
            assert!(reason.contains(&last.file) && reason.contains("checksum"), "{reason}");
            fell_back += 1;
        }
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(fell_back > 0);
    world.assert_exact();
}

#[test]
fn s112_no_checkpoint_begins_while_images_are_read_and_a_stop_waits_and_says_so() {
    let world = World::new();
    world.stop_half_way(JOB);
    hold_images(&world);
    let (mut looked, mut said) = (0, Vec::new());
    let outcome = world.run(JOB, |notice, control| match notice {
        Notice::Progress(progress) if said.is_empty() => {
            assert!(progress.restore.is_some());
            looked += 1;
            control.stop();
        }
        Notice::WaitsForRestore { what, .. } => {
            said.push(*what);
            world.store.hold_reads(Vec::new());
        }
        Notice::Completed { .. } | Notice::CheckpointFailed { .. } => assert!(!said.is_empty(), "{notice:?}"),
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Stopped(_))), "{outcome:?}");
    assert!(looked > 0 && said.len() == 1);
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}

#[test]
fn s112_a_job_whose_images_are_never_read_is_cancelled_within_its_bound() {
    let world = World::new();
    world.stop_half_way(JOB);
    hold_images(&world);
    let outcome = world.run(JOB, |notice, control| {
        if matches!(notice, Notice::Started { .. }) {
            control.wish(Wish::Cancel);
        }
    });
    assert!(matches!(outcome, Ok(Outcome::Cancelled)), "{outcome:?}");
    world.store.hold_reads(Vec::new());
    world.run(JOB, |_, _| {}).unwrap();
    world.assert_exact();
}

#[test]
fn s112_a_job_that_fails_while_images_are_read_goes_on_from_the_same_checkpoint_exactly() {
    let world = World::new();
    world.stop_half_way(JOB);
    hold_images(&world);
    world.source.fail_once();
    let mut from = Vec::new();
    let outcome = world.run(JOB, |notice, _| match notice {
        Notice::Started { from: checkpoint, .. } => from.push(*checkpoint),
        Notice::Restarting { .. } => world.store.hold_reads(Vec::new()),
        _ => {}
    });
    assert!(matches!(outcome, Ok(Outcome::Finished(_))), "{outcome:?}");
    assert!(from.len() == 2 && from[0] == from[1], "{from:?}");
    world.assert_exact();
}
