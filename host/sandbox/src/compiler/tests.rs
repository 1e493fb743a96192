//! What becomes of a component whose compiler does not give an answer. Real compilations are tested with the real program, in `host/cli`.
#![allow(clippy::unwrap_used)]

use super::*;

/// What is said of a component when this script is the compiler.
fn said(script: &str) -> String {
    let mut process = CompilerProcess::this_program(["-c".into(), script.into()]);
    process.program = PathBuf::from("/bin/sh");
    process.time_max = Duration::from_secs(20);
    process.compile(&Engine::default(), true, &vec![0; 1 << 20]).err().unwrap()
}

#[test]
fn s95_a_compiler_that_says_why_is_quoted() {
    assert_eq!(said("cat >/dev/null; echo unknown import >&2; exit 1"), "unknown import");
    // Without having read anything.
    assert_eq!(said("echo early >&2; exit 3"), "early");
}

#[test]
fn s95_a_compiler_that_was_ended_for_its_bounds_says_which() {
    assert!(said("kill -XCPU $$").starts_with("compiling it takes more than 120 s of CPU time; "));
    assert!(said("kill -KILL $$").starts_with("compiling it takes more than 120 s of CPU time; "));
    let memory = said("echo 'memory allocation of 9 bytes failed' >&2; kill -ABRT $$");
    assert!(memory.starts_with("compiling it takes more than 2147483648 bytes of memory; "), "{memory}");
    assert!(said("echo oh >&2; kill -SEGV $$").contains("SIGSEGV"), "a bug of the compiler ends only itself");
}

#[test]
fn s95_a_compiler_that_does_not_end_is_ended() {
    let mut process = CompilerProcess::this_program(["-c".into(), "exec sleep 1000".into()]);
    process.program = PathBuf::from("/bin/sh");
    process.time_max = Duration::from_millis(50);
    let why = process.compile(&Engine::default(), true, b"").err().unwrap();
    assert!(why.starts_with("it was not compiled within 0 s; "), "{why}");
}

#[test]
fn a_program_that_is_not_there_or_talks_nonsense_is_an_error() {
    let mut process = CompilerProcess::this_program([]);
    process.program = PathBuf::from("/nowhere/weir");
    let why = process.compile(&Engine::default(), true, b"").err().unwrap();
    assert!(why.contains("cannot start the compiler's process (/nowhere/weir)"), "{why}");
    assert!(said("cat >/dev/null; echo hello").contains("the compiler's output does not load"));
}
