//! What must hold, whatever happens. `WEIR_SIM_SEED` runs one seed, `WEIR_SIM_RUNS` another number of seeds.

use crate::{Profile, Ran, Sightings, run};

/// Runs many seeds of a kind, or the one that the environment names. Gives what they came across, unless it was just one.
pub(super) fn run_all(name: &str, profile: Profile, runs: u64) -> Option<Vec<Ran>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("WEIR_SIM_SEED") {
        match run(seed, profile, None) {
            Ok(ran) => eprintln!("seed {seed}: {ran:#?}"),
            Err(failed) => panic!("{failed}"),
        }
        return None;
    }
    let (runs, is_all) = number("WEIR_SIM_RUNS").map_or((runs, true), |runs| (runs, false));
    let first = number("WEIR_SIM_FIRST").unwrap_or(0);
    let ran = (first..first + runs).map(|seed| {
        let _printed_on_panic = Replay { name, seed };
        run(seed, profile, None).unwrap_or_else(|failed| panic!("{failed}"))
    });
    let ran: Vec<Ran> = ran.collect();
    is_all.then_some(ran)
}

/// Prints how to replay a run that fails.
struct Replay<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: WEIR_SIM_SEED={} cargo nextest run -p weir-sim {}", self.seed, self.name);
        }
    }
}

/// That the runs came across this, in enough of them: a simulation in which nothing happens proves nothing.
fn saw(ran: &[Ran], what: &str, least: usize, of: impl Fn(&Sightings) -> bool) {
    let count = ran.iter().filter(|ran| of(&ran.seen)).count();
    assert!(count >= least, "only {count} of {} runs came across this: {what}", ran.len());
}

#[test]
fn s20_output_equals_input_whoever_is_killed_and_when() {
    let Some(ran) = run_all("s20_output", Profile::S20Kills, 500) else { return };
    saw(&ran, "a worker crashes", 100, |seen| seen.worker_crashes > 0);
    saw(&ran, "the coordinator crashes", 40, |seen| seen.coordinator_crashes > 0);
    saw(&ran, "an execution is taken over", 20, |seen| seen.taken_over > 0);
    saw(&ran, "rows in flight are restored", 30, |seen| seen.restored_rows > 0);
    saw(&ran, "announcements", 50, |seen| seen.announced > 0);
    saw(&ran, "barriers that are let go on unaligned", 20, |seen| seen.unaligned_late > 0);
    saw(&ran, "commits that are repeated", 20, |seen| seen.commits_again > 0);
    saw(&ran, "s112: a worker is killed while state is restored", 10, |seen| seen.crashes_restoring > 0);
}

#[test]
fn s21_output_equals_input_when_the_parallelism_changes_with_rows_in_flight() {
    let Some(ran) = run_all("s21_output", Profile::S21Rescale, 500) else { return };
    saw(&ran, "a rescale", 60, |seen| seen.rescaled + seen.wished_rescales > 0);
    saw(&ran, "a rescale that somebody asked for", 50, |seen| seen.wished_rescales > 0);
    saw(&ran, "rows in flight are restored", 50, |seen| seen.restored_rows > 0);
    saw(&ran, "a stop", 40, |seen| seen.stopped > 0);
    saw(&ran, "a stop while nothing runs", 1, |seen| seen.stopped_between > 0);
    saw(&ran, "a stop that overtook rows", 10, |seen| seen.stopped_with_rows > 0);
    saw(&ran, "s112: a stop or another parallelism waits for a restore", 3, |seen| seen.waited_for_restore > 0);
}

#[test]
fn s22_no_broadcast_row_is_applied_twice_or_never_by_a_key_group() {
    let Some(ran) = run_all("s22_no", Profile::S22Broadcast, 300) else { return };
    saw(&ran, "rows in flight are restored", 30, |seen| seen.restored_rows > 0);
    saw(&ran, "a rescale", 40, |seen| seen.rescaled + seen.wished_rescales > 0);
}

#[test]
fn s23_output_equals_input_whatever_happens() {
    let Some(ran) = run_all("s23_output", Profile::S23Anything, 1_000) else { return };
    saw(&ran, "a partition", 80, |seen| seen.partitions > 0);
    saw(&ran, "the disk fails", 30, |seen| seen.disk_failures > 0);
    saw(&ran, "a snapshot cannot be stored", 5, |seen| seen.persist_failed > 0);
    saw(&ran, "a manifest cannot be written", 3, |seen| seen.manifest_failed > 0);
    saw(&ran, "a checkpoint is given up", 100, |seen| seen.aborted > 0);
    saw(&ran, "a job is cancelled", 30, |seen| seen.cancelled > 0);
    saw(&ran, "a request takes effect that nobody waits for", 5, |seen| seen.stragglers > 0);
}

#[test]
fn s84_output_equals_input_when_a_job_goes_back_to_an_older_checkpoint() {
    let Some(ran) = run_all("s84_output", Profile::S84Damage, 300) else { return };
    saw(&ran, "what was stored is lost", 40, |seen| seen.damaged > 0);
    saw(&ran, "a checkpoint cannot be restored", 30, |seen| seen.fell_back > 0);
    saw(&ran, "output is taken back", 10, |seen| seen.taken_back > 0);
    saw(&ran, "s112: damage is found while tasks run", 10, |seen| seen.damage_found_late > 0);
}

#[test]
fn s86_output_equals_input_and_people_are_answered_when_storage_hangs() {
    let Some(ran) = run_all("s86_output", Profile::S86Hang, 300) else { return };
    saw(&ran, "a request is not answered", 20, |seen| seen.hung > 0);
    saw(&ran, "somebody is told of a slow storage", 5, |seen| seen.slow_storage > 0);
    saw(&ran, "somebody is told of a slow step", 5, |seen| seen.slow_steps > 0);
    saw(&ran, "a request takes effect when nobody waits for it", 5, |seen| seen.stragglers > 0);
    saw(&ran, "a job is cancelled", 25, |seen| seen.cancelled > 0);
}

#[test]
fn s88_output_equals_input_when_a_coordinator_goes_on_that_has_a_successor() {
    let Some(ran) = run_all("s88_output", Profile::S88Second, 200) else { return };
    saw(&ran, "a second coordinator", 60, |seen| seen.second_coordinators > 0);
    saw(&ran, "a coordinator that stands still while it completes a checkpoint", 20, |seen| seen.paused > 0);
    saw(&ran, "a worker that stays with its coordinator", 5, |seen| seen.stayed > 0);
    saw(&ran, "an execution is taken over", 15, |seen| seen.taken_over > 0);
}

#[test]
fn s80_a_checkpoint_that_was_given_up_and_turns_out_to_be_complete_loses_nothing() {
    let Some(ran) = run_all("s80_a_checkpoint", Profile::S80Uncertain, 300) else { return };
    saw(&ran, "a manifest that nobody knows of", 100, |seen| !seen.uncertain.is_empty());
    saw(&ran, "such a checkpoint that is announced as complete", 40, |seen| seen.announced_late > 0);
    saw(&ran, "a restore", 50, |seen| seen.attempts > 1);
    saw(&ran, "chains that are merged", 20, |seen| seen.merges > 0);
}

#[test]
fn s24_rows_in_flight_of_a_restore_are_captured_again() {
    let Some(ran) = run_all("s24_rows", Profile::S24InFlightAgain, 300) else { return };
    saw(&ran, "rows in flight are restored", 60, |seen| seen.restored_rows > 0);
    saw(&ran, "checkpoints with rows in flight", 100, |seen| seen.completed_with_rows > 0);
}

#[test]
fn s25_rows_larger_than_a_frame_and_a_window_are_whole() {
    let Some(ran) = run_all("s25_rows", Profile::S25LargeRows, 60) else { return };
    saw(&ran, "something is restored", 15, |seen| seen.attempts > 1);
}

#[test]
fn s28_an_idle_source_holds_neither_watermarks_nor_checkpoints_up() {
    let Some(ran) = run_all("s28_an", Profile::S28Idle, 100) else { return };
    for (seed, ran) in ran.iter().enumerate() {
        // The source idles for three seconds, and the other one goes on.
        let between = ran.seen.completed.iter().filter(|(at_us, _)| (500_000..2_500_000).contains(at_us)).count();
        assert!(between >= 3, "seed {seed}: {between} checkpoints while a source idles");
        let watermark = ran.watermark_in_between;
        assert!(watermark.is_some_and(|watermark| watermark > 1_200), "seed {seed}: event time stands at {watermark:?}");
    }
}

#[test]
fn s29_one_key_with_nine_rows_of_ten_is_counted_right() {
    let Some(ran) = run_all("s29_one", Profile::S29Skew, 150) else { return };
    saw(&ran, "something is restored", 50, |seen| seen.attempts > 1);
}

#[test]
fn at_least_once_loses_nothing() {
    let Some(ran) = run_all("at_least", Profile::AtLeastOnce, 200) else { return };
    saw(&ran, "something is restored", 60, |seen| seen.attempts > 1);
}
