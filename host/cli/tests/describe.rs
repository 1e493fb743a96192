//! s115: components say what they are in a process of their own, whose bounds hold against hostile ones.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use weir_sandbox::{CompilerProcess, Sandbox, SandboxOptions};

/// The program under test, as the child that compiles and asks.
fn compiler() -> CompilerProcess {
    let mut process = CompilerProcess::this_program(["compile-component".into()]);
    process.program = env!("CARGO_BIN_EXE_weir").into();
    process
}

/// A module of an operator whose `describe` is this code. None of its other functions is ever called.
fn describing(code: &str) -> Vec<u8> {
    let function = |name: &str, params: &str| {
        format!("(func (export \"weir:operator/lifecycle@0.2.0#{name}\") {params} (result i32) unreachable)")
    };
    let text = format!(
        r#"(module (@custom "component-type" "") (memory (export "memory") 4)
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
          (func (export "weir:operator/lifecycle@0.2.0#describe") (result i32) {code})
          {} {} {} {}
          (data (i32.const 64) "in") (data (i32.const 72) "\40\00\00\00\02\00\00\00") (data (i32.const 88) "true")
          ;; One input, no output, the schema `true`, state in memory.
          (data (i32.const 136) "\48\00\00\00\01\00\00\00") (data (i32.const 152) "\58\00\00\00\04\00\00\00\01"))"#,
        function("open", "(param i32 i32 i32 i32 i32 i32 i32 i32)"),
        function("process", "(param i32 i32 i32 i32 i32)"),
        function("advance", "(param i64)"),
        function("finish", ""),
    );
    wat::parse_str(text).unwrap()
}

fn described(compiler: CompilerProcess, code: &str) -> Result<weir_model::Description, String> {
    let sandbox = Sandbox::new(SandboxOptions { compiler: Some(compiler), ..SandboxOptions::default() }).unwrap();
    sandbox.describe(&describing(code)).map_err(|error| error.to_string())
}

#[test]
fn s115_the_child_asks_as_this_process_would() {
    let description = described(compiler(), "(i32.const 128)").unwrap();
    let mut expected = weir_model::Description::plain();
    expected.outputs.clear();
    assert_eq!(description, expected);
    let here = Sandbox::new(SandboxOptions::default()).unwrap().describe(&describing("unreachable")).unwrap_err().to_string();
    assert_eq!(described(compiler(), "unreachable").unwrap_err(), here);
}

#[test]
fn s115_a_component_that_does_not_say_what_it_is_is_stopped_in_the_child_and_this_process_goes_on() {
    let endless = "(loop $ever (br $ever)) unreachable";
    let began = Instant::now();
    let error = described(CompilerProcess { describe_cpu_s_max: 1, ..compiler() }, endless).unwrap_err();
    assert!(error.contains("saying what it is takes more than 1 s of CPU time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(120), "however busy this machine is");
    let greedy = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 100)) (i32.const -1)))) unreachable";
    let error = described(compiler(), greedy).unwrap_err();
    assert!(error.contains("it met its memory limit"), "{error}");
    // As many bytes as its memory has for one text.
    let huge = "(i32.store (i32.const 128) (i32.const 0)) (i32.store (i32.const 132) (i32.const 200000)) (i32.const 128)";
    let error = described(compiler(), huge).unwrap_err();
    assert!(error.contains("bytes of text, more than the limit of 65536"), "{error}");
    described(compiler(), "(i32.const 128)").unwrap();
}
