//! s95: components compile in a process of their own, whose bounds hold against hostile ones.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use weir_sandbox::{CompilerProcess, Sandbox, SandboxError, SandboxOptions};

const LIFECYCLE: &str = r#"(type $timestamp' s64) (import "weir:operator/types@0.2.0" (instance $types
    (type $timestamp' s64) (export "timestamp" (type (eq $timestamp')))
    (type $blobs' (record (field "ends" (list u32)) (field "bytes" (list u8)))) (export "blobs" (type $blobs (eq $blobs')))
    (type $batch' (record (field "timestamps" (list s64)) (field "keys" $blobs) (field "values" $blobs)))
    (export "batch" (type (eq $batch')))))
  (instance $lifecycle) (export "weir:operator/lifecycle@0.2.0" (instance $lifecycle))"#;

/// The program under test, as the child that compiles.
fn compiler() -> CompilerProcess {
    let mut process = CompilerProcess::this_program(["compile-component".into()]);
    process.program = env!("CARGO_BIN_EXE_weir").into();
    process
}

/// Bytes of a component with one function of this body. It exports no functions, so it is refused when it is linked, at the earliest.
fn component(function: &str) -> Vec<u8> {
    wat::parse_str(format!("(component (core module $m (memory 1) {function}) (core instance (instantiate $m)) {LIFECYCLE})"))
        .unwrap()
}

fn refusal(compiler: CompilerProcess, component: &[u8]) -> SandboxError {
    let sandbox = Sandbox::new(SandboxOptions { compiler: Some(compiler), ..SandboxOptions::default() }).unwrap();
    sandbox.take_in(component).err().unwrap()
}

/// A function whose values all live until its end, so that the allocation of registers has much to do.
fn entangled(values: usize) -> String {
    let locals = "(local i64)".repeat(values.min(40_000));
    let sets: String = (0..values)
        .map(|n| {
            format!("(local.set {} (i64.mul (i64.load (i32.const {})) (local.get {})))", n % 40_000, n % 60_000, (n * 7) % 40_000)
        })
        .collect();
    format!("(func (export \"f\") {locals} (loop $again {sets} (br_if $again (i64.eqz (local.get 0)))))")
}

#[test]
fn s95_the_child_compiles_as_this_process_would() {
    // Compiled, it is found not to fit the contract: nothing of the child shows.
    let bytes = component("(func (export \"f\"))");
    let here = Sandbox::new(SandboxOptions::default()).unwrap().take_in(&bytes).err().unwrap();
    let there = refusal(compiler(), &bytes);
    assert!(matches!(there, SandboxError::Contract { .. }), "{there}");
    assert_eq!(there.to_string(), here.to_string());
}

#[test]
fn s95_what_the_child_compiled_is_kept_and_loaded_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path().join("compiled"));
    let bytes = component("(func (export \"f\"))");
    let with = |compiler| {
        Sandbox::new(SandboxOptions { cache: cache.clone(), compiler: Some(compiler), ..SandboxOptions::default() }).unwrap()
    };
    let first = with(compiler()).take_in(&bytes).err().unwrap().to_string();
    let mut none = compiler();
    none.program = "/nowhere".into();
    assert_eq!(with(none).take_in(&bytes).err().unwrap().to_string(), first);
}

#[test]
fn s95_a_hostile_component_is_stopped_at_its_bounds_of_time_and_memory() {
    let bytes = component(&entangled(60_000));
    let began = Instant::now();
    let error = refusal(CompilerProcess { cpu_s_max: 1, ..compiler() }, &bytes).to_string();
    assert!(error.contains("compiling it takes more than 1 s of CPU time; split large functions"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(120), "however busy this machine is");

    let error = refusal(CompilerProcess { memory_bytes_max: 48 << 20, ..compiler() }, &bytes).to_string();
    assert!(error.contains("compiling it takes more than 50331648 bytes of memory; split large functions"), "{error}");
}

#[test]
fn s95_a_child_that_is_given_nonsense_says_so_and_compiles_nothing() {
    let run = |input: &[u8]| {
        use std::io::Write;
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("compile-component")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = run(b"");
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("for weir's own use"));
    let header = [&[1][..], &60u64.to_le_bytes(), &(1u64 << 30).to_le_bytes()].concat();
    let output = run(&[&header[..], b"no component"].concat());
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(!output.stderr.is_empty());
}
