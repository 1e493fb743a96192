//! That the simulation can be trusted: it replays exactly, and it finds what is wrong.

use crate::{Mutation, Profile, run};

#[test]
fn the_same_seed_goes_the_same_way() {
    let profiles =
        [Profile::S20Kills, Profile::S21Rescale, Profile::S22Broadcast, Profile::S23Anything, Profile::S24InFlightAgain];
    for seed in 1_000..1_006 {
        for profile in profiles {
            let once = run(seed, profile, None);
            assert_eq!(once, run(seed, profile, None), "seed {seed} of {profile:?}");
        }
    }
    let traces = [1, 2].map(|seed| run(seed, Profile::S23Anything, None).map(|ran| ran.trace));
    assert_ne!(traces[0], traces[1], "other seeds go other ways");
}

/// Within how many seeds it is found.
fn found(mutation: Mutation, profile: Profile, seeds: u64) {
    let first = (0..seeds).find(|seed| run(*seed, profile, Some(mutation)).is_err());
    let Some(seed) = first else { panic!("{mutation:?} is not found in {seeds} seeds of {profile:?}") };
    assert!(run(seed, profile, None).is_ok(), "seed {seed} of {profile:?} fails anyway");
    eprintln!("{mutation:?} is found by seed {seed} of {profile:?}");
}

#[test]
fn a_frame_that_is_missing_among_rows_in_flight_is_found() {
    found(Mutation::DropInFlightFrame, Profile::S24InFlightAgain, 60);
}

#[test]
fn a_channel_that_is_not_blocked_is_found() {
    found(Mutation::SkipBlocking, Profile::S20Kills, 60);
}

#[test]
fn broadcast_rows_that_reach_a_key_group_again_are_found() {
    found(Mutation::ForgetReach, Profile::S22Broadcast, 400);
}

#[test]
fn a_committable_that_is_forgotten_is_found() {
    found(Mutation::ForgetPrepared, Profile::S23Anything, 300);
}

#[test]
fn s80_a_chain_that_is_dropped_with_an_abort_is_found() {
    found(Mutation::DropChain, Profile::S80Uncertain, 100);
}

#[test]
fn a_checkpoint_without_a_tasks_part_is_found() {
    found(Mutation::SkipAcknowledgement, Profile::S20Kills, 10);
}

#[test]
fn a_source_that_goes_on_at_the_wrong_row_is_found() {
    found(Mutation::SkipRow, Profile::S20Kills, 60);
}
