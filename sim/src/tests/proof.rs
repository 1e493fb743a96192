//! That the simulation can be trusted: it replays exactly, and it finds what is wrong.

use crate::{Mutation, Profile, run};

#[test]
fn the_same_seed_goes_the_same_way() {
    let profiles =
        [Profile::S20Kills, Profile::S21Rescale, Profile::S23Anything, Profile::S84Damage, Profile::S86Hang, Profile::S88Second];
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
fn a_committable_that_is_forgotten_is_found() {
    found(Mutation::ForgetPrepared, Profile::S23Anything, 60);
}

#[test]
fn a_source_that_goes_on_at_the_wrong_row_is_found() {
    found(Mutation::SkipRow, Profile::S20Kills, 60);
}
