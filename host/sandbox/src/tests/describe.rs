//! s115: what components say of themselves, and that none can say it without end, without bounds or falsely.

use std::time::Instant;

use weir_model::{Scratch, StateKind};

use super::*;
use crate::SandboxError;

/// A component of the plain world whose `describe` is these lines.
fn saying(lines: &str) -> Vec<u8> {
    component_of(&describing::with(include_str!("script.wat"), lines), "plain")
}

fn small() -> Description {
    Description { inputs: described_with(2).inputs, ..described_with(2) }
}

fn ask(bytes: &[u8]) -> Result<Description, String> {
    HASH.0.describe(bytes).map_err(|error| {
        assert!(matches!(error, SandboxError::Describe { .. }), "{error}");
        error.to_string()
    })
}

fn refusal(description: &Description) -> String {
    ask(&saying(&describing::describe(description))).unwrap_err()
}

#[test]
fn a_component_says_what_it_is() {
    let mut description = small();
    description.doc = "What it is for: ü".to_string();
    description.config = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#.to_string();
    description.outputs[1].keeps_key = true;
    description.outputs[1].doc = "Late rows.".to_string();
    description.state = StateKind::None;
    description.pure = true;
    description.scratch = Some(Scratch { offset: 0x20_0000, len: 0x1_0000 });
    assert_eq!(ask(&saying(&describing::describe(&description))).unwrap(), description);
    description.state = StateKind::Portable(7);
    let module = include_str!("guest.wat")
        .replace("(func (export \"weir:operator/lifecycle@0.2.0#describe\") (result i32) unreachable)", "");
    description.scratch = None;
    let bytes = component(&describing::with(&module, &describing::describe(&description)));
    assert_eq!(ask(&bytes).unwrap(), description);
}

#[test]
fn s115_descriptions_that_trap_lie_in_their_lengths_or_are_endless_are_refused_in_bounded_time() {
    let record = |words: &[(u32, u32)]| {
        let stores = words.iter().map(|(at, word)| format!("(i32.store (i32.const {}) (i32.const {}))", 512 + at, *word as i32));
        describing::does(&format!("{} (i32.const 512)", stores.collect::<String>()), "")
    };
    let huge = 4 << 20;
    let cases = [
        (describing::does("unreachable", ""), "unreachable"),
        (describing::does("(i32.const -4)", ""), "out of bounds"),
        (record(&[(0, 0), (4, u32::MAX)]), "out of bounds"),
        (record(&[(4, huge)]), "bytes of text, more than the limit of 65536"),
        (record(&[(28, huge)]), "bytes of text, more than the limit of 65536"),
        (record(&[(12, 1 << 18)]), "262144 inputs, more than the limit of 16"),
        (record(&[(20, 1 << 17)]), "131072 outputs, more than the limit of 16"),
        (record(&[(12, 1 << 30)]), "out of bounds"),
        (record(&[(32, 9)]), "discriminant"),
    ];
    for (lines, why) in cases {
        let began = Instant::now();
        let error = ask(&saying(&lines)).unwrap_err();
        assert!(error.contains(why), "{lines}: {error}");
        assert!(began.elapsed().as_secs() < 60, "{lines}: {:?}", began.elapsed());
    }
}

#[test]
fn s115_a_description_that_does_not_end_is_ended() {
    let began = Instant::now();
    let error = ask(&saying(&describing::does("(loop $ever (br $ever)) unreachable", ""))).unwrap_err();
    assert!(error.contains("longer than its deadline"), "{error}");
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn s115_a_description_that_takes_all_memory_gets_no_more_than_its_own() {
    let grow = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 100)) (i32.const -1)))) unreachable";
    let error = ask(&saying(&describing::does(grow, ""))).unwrap_err();
    assert!(error.contains("of 268435456 that it may have"), "{error}");
}

#[test]
fn s115_descriptions_beyond_their_bounds_are_refused_and_those_at_them_are_not() {
    let name = |name: &str| {
        let mut description = small();
        description.outputs[0].name = name.to_string();
        description
    };
    let config = |config: &str| Description { config: config.to_string(), ..small() };
    let ports = |count: usize| {
        let mut description = small();
        let port = |n| OutputPort { name: format!("p{n}"), doc: String::new(), keeps_key: false };
        description.outputs = (0..count).map(port).collect();
        description
    };
    for good in [name(&"n".repeat(64)), name("a_1"), ports(16), ports(0), config(r##"{"$ref":"#/$defs/a","$defs":{"a":true}}"##)]
    {
        assert_eq!(ask(&saying(&describing::describe(&good))).unwrap(), good);
    }
    let scratch = |offset, len| Description { scratch: Some(Scratch { offset, len }), ..small() };
    let deep = format!("{}true{}", r#"{"items":"#.repeat(40), "}".repeat(40));
    let cases = [
        (name(""), "cannot be the name of an output"),
        (name(&"n".repeat(65)), "cannot be the name of an output"),
        (name("Out"), "cannot be the name of an output"),
        (name("out1"), "two outputs are called `out1`"),
        (ports(17), "17 outputs, more than the limit of 16"),
        (Description { inputs: Vec::new(), ..small() }, "it has no input"),
        (Description { doc: "a\u{1b}[31m".to_string(), ..small() }, "control characters"),
        (config("{"), "JSON Schema of its configuration"),
        (config(&deep), "JSON Schema of its configuration"),
        (config(r#"{"$ref":"https://example.com/schema"}"#), "JSON Schema of its configuration"),
        (config(r#"{"pattern":"(a)\\1"}"#), "JSON Schema of its configuration"),
        (Description { state: StateKind::Portable(1), ..small() }, "does not export weir:operator/portable@0.2.0"),
        (Description { uses_store: true, ..small() }, "it says that it uses store"),
        (Description { uses_timers: true, ..small() }, "it says that it uses timers"),
        (scratch(0x20_0000, 0), "whole pages"),
        (scratch(0x20_0001, 0x1_0000), "whole pages"),
        (scratch(0, (8 << 20) + (64 << 10)), "at most 8388608 bytes"),
        (scratch(80 << 16, 1 << 16), "reaches beyond the 5242880 bytes"),
        (scratch(u32::MAX << 16, 1 << 16), "reaches beyond the 5242880 bytes"),
    ];
    for (description, why) in cases {
        let error = refusal(&description);
        assert!(error.contains(why), "{description:?}: {error}");
    }
    let large = Description { doc: "d".repeat(65_537), ..small() };
    assert!(refusal(&large).contains("bytes of text, more than the limit of 65536"));
}

#[test]
fn scratch_of_a_component_with_two_memories_is_refused() {
    let component = HASH.0.take_in(&wat::parse_str(include_str!("twins.wat")).unwrap()).unwrap();
    let description = Description { scratch: Some(Scratch { offset: 0, len: 1 << 16 }), ..described_with(5) };
    let (limits, events) = (InstanceLimits::default(), Arc::new(Events::default()));
    let error = Template::open(&component, &description, &context("{}"), &limits, events).err().unwrap().to_string();
    assert!(error.contains("it names scratch, and has 2 memories"), "{error}");
}

#[test]
fn a_component_is_asked_once_where_there_is_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path().join("cache"));
    let bytes = saying(&describing::describe(&small()));
    let entries =
        || std::fs::read_dir(folder.path().join("cache")).unwrap().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let sandbox = || Sandbox::new(SandboxOptions { cache: cache.clone(), ..SandboxOptions::default() }).unwrap();
    assert_eq!(sandbox().describe(&bytes).unwrap(), small());
    let kept: Vec<_> = entries().into_iter().filter(|path| path.to_string_lossy().ends_with(".description")).collect();
    let [kept] = &*kept else { panic!("{kept:?}") };
    let before = std::fs::metadata(kept).unwrap().modified().unwrap();
    // Without its machine code, a component could not be asked without making it again.
    entries().iter().filter(|path| *path != kept && path.extension().is_none() && path.to_string_lossy().contains('-')).for_each(
        |path| {
            std::fs::remove_file(path).unwrap();
        },
    );
    let left = entries().len();
    assert_eq!(sandbox().describe(&bytes).unwrap(), small());
    assert_eq!(entries().len(), left, "nothing was compiled");
    // What was changed is not trusted, and asked for again.
    let text = std::fs::read(kept).unwrap();
    let forged: Vec<u8> = text.iter().map(|byte| if *byte == b'i' { b'j' } else { *byte }).collect();
    std::fs::write(kept, &forged).unwrap();
    assert_eq!(sandbox().describe(&bytes).unwrap(), small());
    assert!(std::fs::read(kept).unwrap() == text && std::fs::metadata(kept).unwrap().modified().unwrap() >= before);
}
