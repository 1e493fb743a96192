//! Every target over its seeds and corpus, and over a number of mutations that is the same each time.

use weir_fuzz::campaign::{self, Until};

fn bounded(name: &str) {
    let target = weir_fuzz::target(name).expect("a target of this name");
    let outcome = campaign::run(&target, 1, Until::Count(target.bounded)).expect("its corpus");
    if let Some(finding) = outcome.findings.first() {
        panic!("{name}: {}: {:?}", finding.what, String::from_utf8_lossy(&finding.bytes));
    }
    // One that says the same of everything looks at nothing.
    assert!(outcome.said >= 2, "{name}: only {} different answers to {} inputs", outcome.said, outcome.tried);
}

macro_rules! bounded {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            bounded(stringify!($name));
        })*

        #[test]
        fn no_target_is_left_out() {
            let names: Vec<&str> = weir_fuzz::targets().iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

bounded! {
    report peer_message command component images job api lines compressed positions committables
    manifest log_entry json clf times knock hello channel_header frames
}
