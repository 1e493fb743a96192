//! What guests in text form say of themselves: a description as it lies in a guest's memory, and components whose `describe` does as a test
//! wishes.

use std::fmt::Write;

use weir_model::{Description, Scratch, StateKind};

/// Where a description is put: nothing else of a guest of these tests lies there.
const AT: u32 = 0x3000;

/// The record of `description` and all that it points to, from [`AT`] on.
struct Laid {
    bytes: Vec<u8>,
}

impl Laid {
    fn put(&mut self, bytes: &[u8]) -> u32 {
        let at = AT + self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        at
    }

    /// Where a text is, and how long.
    fn text(&mut self, text: &str) -> [u32; 2] {
        [self.put(text.as_bytes()), text.len() as u32]
    }
}

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The lines of a module that make `describe` say this.
pub(super) fn describe(description: &Description) -> String {
    let Description { doc, inputs, outputs, config, state, uses_store, uses_timers, pure, scratch } = description;
    let mut laid = Laid { bytes: vec![0; 56] };
    let (doc, config) = (laid.text(doc), laid.text(config));
    let input_words: Vec<u32> = inputs.iter().flat_map(|port| [laid.text(&port.name), laid.text(&port.doc)]).flatten().collect();
    let mut output_words = Vec::new();
    for port in outputs {
        output_words.extend([laid.text(&port.name), laid.text(&port.doc)].into_iter().flatten());
        output_words.push(u32::from(port.keeps_key));
    }
    let (inputs, outputs) = ((laid.put(&words(input_words)), inputs.len()), (laid.put(&words(output_words)), outputs.len()));
    let state = match *state {
        StateKind::None => [0, 0],
        StateKind::Memory => [1, 0],
        StateKind::Portable(version) => [2, version],
    };
    let flags = u32::from(*uses_store) | u32::from(*uses_timers) << 8 | u32::from(*pure) << 16;
    let Scratch { offset, len } = scratch.unwrap_or(Scratch { offset: 0, len: 0 });
    let mut record = vec![doc[0], doc[1], inputs.0, inputs.1 as u32, outputs.0, outputs.1 as u32, config[0], config[1]];
    record.extend([state[0], state[1], flags, u32::from(scratch.is_some()), offset, len]);
    laid.bytes[..56].copy_from_slice(&words(record));
    let mut data = String::new();
    laid.bytes.iter().for_each(|byte| write!(data, "\\{byte:02x}").unwrap());
    does(&format!("(i32.const {AT})"), &format!("(data (i32.const {AT}) \"{data}\")"))
}

/// The lines of a module whose `describe` is this code.
pub(super) fn does(code: &str, fields: &str) -> String {
    // An allocator takes back what was returned, and writes its own there.
    let freed = format!(
        "(func (export \"cabi_post_weir:operator/lifecycle@0.2.0#describe\") (param i32) (memory.fill (i32.const {AT}) (i32.const 0xff) (i32.const 0x1000)))"
    );
    format!("{fields}\n(func (export \"weir:operator/lifecycle@0.2.0#describe\") (result i32) {code})\n{freed}")
}

/// A module with further fields.
pub(super) fn with(module: &str, fields: &str) -> String {
    let end = module.rfind(')').unwrap();
    format!("{}\n{fields})", &module[..end])
}
