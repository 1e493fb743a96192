//! s110, s111, s113: what goes into a guest, what comes out of it by reference and by value, and what is refused.

use weir_model::{Columns, RowRef, key_group_of, push_header};

use super::*;
use crate::{CallError, KeyShare, SandboxError, Trap, TrapKind};

const ROWS: u32 = 0;
const SCRIPT: u32 = 1;

/// What `script.wat` is: port 2 keeps the key.
fn script_description() -> Description {
    let mut description = described_with(2);
    description.outputs.truncate(3);
    description.outputs[2].keeps_key = true;
    description
}

static SCRIPTED: LazyLock<Component> = LazyLock::new(|| {
    let module = describing::with(include_str!("script.wat"), &describing::describe(&script_description()));
    HASH.0.take_in(&component_of(&module, "plain")).unwrap()
});

/// An instance that asks for these columns of its rows.
fn asking(columns: Columns) -> Instance {
    let letter = char::from(b'@' + columns.bits());
    Instance::new(&scripted(&letter.to_string()).unwrap()).unwrap()
}

fn scripted(config: &str) -> Result<Template, SandboxError> {
    let events = Arc::new(Events::default());
    Template::open(&SCRIPTED, &script_description(), &context(config), &InstanceLimits::default(), events)
}

/// One command of a script.
#[derive(Clone, Debug)]
enum Command {
    Forward(u32, Vec<u32>),
    /// Rows, and the value of each.
    EmitValues(u32, Vec<u32>, Vec<Option<Vec<u8>>>),
    Emit(u32, Batch),
    /// As the guest would hand it over.
    Raw(u32, [u32; 2], Vec<u8>),
    /// Bytes of rows and of values as they are.
    RawValues(u32, Vec<u8>, Vec<u8>),
    RawForward(u32, Vec<u8>),
}

fn le(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Ends, bytes, and bits where some are absent.
fn blobs(items: &[Option<Vec<u8>>]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut end = 0;
    let ends = items.iter().map(|item| {
        end += item.as_ref().map_or(0, Vec::len) as u32;
        end
    });
    let ends = le(ends);
    let bits =
        |chunk: &[Option<Vec<u8>>]| chunk.iter().enumerate().fold(0, |byte, (n, item)| byte | u8::from(item.is_none()) << n);
    let absent = if items.iter().any(Option::is_none) { items.chunks(8).map(bits).collect() } else { Vec::new() };
    (ends, items.iter().flatten().flatten().copied().collect(), absent)
}

/// The columns and the data of rows that are emitted.
fn batch_out(batch: &Batch) -> (Columns, Vec<u8>) {
    let rows: Vec<RowRef<'_>> = batch.rows().collect();
    let column = |item: fn(&RowRef<'_>) -> Option<Vec<u8>>| blobs(&rows.iter().map(item).collect::<Vec<_>>());
    let keys = column(|row| row.key.map(<[u8]>::to_vec));
    let values = column(|row| row.value.map(<[u8]>::to_vec));
    let headers = column(|row| Some(row.headers.to_vec()));
    let mut has = Columns::TIMESTAMPS | Columns::VALUES;
    let (no_key, no_header) = (rows.iter().all(|row| row.key.is_none()), headers.1.is_empty());
    let mut data: Vec<u8> = rows.iter().flat_map(|row| row.timestamp.to_le_bytes()).collect();
    has = if no_key { has } else { has | Columns::KEYS };
    has = if no_header { has } else { has | Columns::HEADERS };
    let parts = [(!no_key, &keys.0), (true, &values.0), (!no_header, &headers.0), (!no_key, &keys.1), (true, &values.1)];
    parts.iter().filter(|(there, _)| *there).for_each(|(_, part)| data.extend_from_slice(part));
    data.extend(if no_header { &[][..] } else { &headers.1 });
    if !no_key && !keys.2.is_empty() {
        has = has | Columns::ABSENT_KEYS;
        data.extend(&keys.2);
    }
    if !values.2.is_empty() {
        has = has | Columns::ABSENT_VALUES;
        data.extend(&values.2);
    }
    (has, data)
}

impl Command {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Command::Forward(port, rows) => Command::RawForward(*port, le(rows.iter().copied())).bytes(),
            Command::RawForward(port, rows) => [le([0, *port, rows.len() as u32]), rows.clone()].concat(),
            Command::EmitValues(port, rows, values) => {
                let (ends, bytes, absent) = blobs(values);
                Command::RawValues(*port, le(rows.iter().copied()), [ends, bytes, absent].concat()).bytes()
            }
            Command::RawValues(port, rows, values) => {
                [le([1, *port, rows.len() as u32, values.len() as u32]), rows.clone(), values.clone()].concat()
            }
            Command::Emit(port, batch) => {
                let (has, data) = batch_out(batch);
                Command::Raw(*port, [batch.len() as u32, u32::from(has.bits())], data).bytes()
            }
            Command::Raw(port, [rows, has], data) => [le([2, *port, *rows, *has, data.len() as u32]), data.clone()].concat(),
        }
    }

    /// The same rows, handed over whole.
    fn as_emit(&self, rows: &Batch) -> Command {
        let mut whole = Batch::default();
        match self {
            Command::Forward(port, numbers) => {
                numbers.iter().for_each(|&row| whole.push_row(rows.view().row(row as usize)));
                Command::Emit(*port, whole)
            }
            Command::EmitValues(port, numbers, values) => {
                for (&row, value) in numbers.iter().zip(values) {
                    whole.push_row(RowRef { value: value.as_deref(), ..rows.view().row(row as usize) });
                }
                Command::Emit(*port, whole)
            }
            other => other.clone(),
        }
    }
}

fn tell(instance: &mut Instance, commands: &[Command]) {
    let mut script = Batch::default();
    script.push(0, b"", &commands.iter().flat_map(Command::bytes).collect::<Vec<_>>());
    instance.process(SCRIPT, script.view(), &mut EmittedRows::new()).unwrap();
}

fn carry_out(instance: &mut Instance, commands: &[Command], rows: &Batch) -> Result<EmittedRows, CallError> {
    tell(instance, commands);
    let mut emitted = EmittedRows::new();
    instance.process(ROWS, rows.view(), &mut emitted).map(|_| emitted)
}

fn bytes(numbers: &mut Numbers, most: u64) -> Vec<u8> {
    (0..numbers.below(most + 1)).map(|_| numbers.next() as u8).collect()
}

/// Rows of any kind.
fn any_rows(numbers: &mut Numbers, plain: bool) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..=numbers.below(40) {
        let (key, value, mut headers) = (bytes(numbers, 9), bytes(numbers, 30), Vec::new());
        if numbers.below(4) == 0 {
            push_header(&mut headers, &bytes(numbers, 4), &bytes(numbers, 9));
        }
        let odd = |numbers: &mut Numbers| !plain && numbers.below(5) == 0;
        let (key, value) = ((!odd(numbers)).then_some(&*key), (!odd(numbers)).then_some(&*value));
        batch.push_row(RowRef { timestamp: numbers.next() as i64, key, value, headers: if plain { b"" } else { &headers } });
    }
    batch
}

fn any_command(numbers: &mut Numbers, rows: &Batch, plain: bool) -> Command {
    let port = numbers.below(3) as u32;
    let some: Vec<u32> = match numbers.below(3) {
        0 => (0..rows.len() as u32).collect(),
        _ => (0..numbers.below(30)).map(|_| numbers.below(rows.len() as u64) as u32).collect(),
    };
    match numbers.below(3) {
        0 => Command::Forward(port, some),
        1 => {
            let values = some.iter().map(|_| (plain || numbers.below(6) > 0).then(|| bytes(numbers, 20))).collect();
            Command::EmitValues(port, some, values)
        }
        _ => Command::Emit(port, any_rows(numbers, plain)),
    }
}

#[test]
fn s110_rows_that_leave_by_reference_are_those_that_leave_whole_in_any_order() {
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        // What is asked for changes nothing of what can be forwarded.
        let columns = Columns::from_bits(numbers.below(32) as u8).unwrap();
        let mut instance = asking(columns);
        for _ in 0..5 {
            let plain = numbers.below(2) == 0;
            let rows = any_rows(&mut numbers, plain);
            let commands: Vec<Command> = (0..numbers.below(12)).map(|_| any_command(&mut numbers, &rows, plain)).collect();
            let whole: Vec<Command> = commands.iter().map(|command| command.as_emit(&rows)).collect();
            let by_reference = carry_out(&mut instance, &commands, &rows).unwrap();
            let emitted = carry_out(&mut instance, &whole, &rows).unwrap();
            assert!(by_reference.entries().eq(emitted.entries()), "seed {seed}: {commands:?}");
            let expected: usize =
                whole.iter().map(|command| if let Command::Emit(_, batch) = command { batch.len() } else { 0 }).sum();
            assert_eq!(emitted.rows_len(), expected, "seed {seed}");
            assert!(emitted.entries().all(|(_, rows)| rows.is_valid()));
        }
    }
}

/// What came into the guest: columns and data.
fn came(instance: &Instance) -> (Columns, Vec<u8>) {
    let memory = memory(instance);
    let word = |at: usize| u32::from_le_bytes(memory[at..at + 4].try_into().unwrap()) as usize;
    (Columns::from_bits(word(112) as u8).unwrap(), memory[word(120)..][..word(116)].to_vec())
}

#[test]
fn exactly_the_columns_that_were_asked_for_go_in() {
    let mut numbers = Numbers(5);
    for bits in 0..32 {
        let columns = Columns::from_bits(bits).unwrap();
        let mut instance = asking(columns);
        for plain in [true, false, false] {
            let rows = any_rows(&mut numbers, plain);
            carry_out(&mut instance, &[], &rows).unwrap();
            let (has, data) = came(&instance);
            assert_eq!(has.without(Columns::ABSENT_KEYS | Columns::ABSENT_VALUES), columns);
            let all: Vec<RowRef<'_>> = rows.rows().collect();
            let column = |item: fn(&RowRef<'_>) -> Option<Vec<u8>>| blobs(&all.iter().map(item).collect::<Vec<_>>());
            let keys = column(|row| row.key.map(<[u8]>::to_vec));
            let values = column(|row| row.value.map(<[u8]>::to_vec));
            let headers = column(|row| Some(row.headers.to_vec()));
            let mut expected = Vec::new();
            let mut put = |column, bytes: Vec<u8>| expected.extend(if has.has(column) { bytes } else { Vec::new() });
            put(Columns::TIMESTAMPS, all.iter().flat_map(|row| row.timestamp.to_le_bytes()).collect());
            put(Columns::HASHES, all.iter().flat_map(|row| weir_model::key_hash(row.key_bytes()).to_le_bytes()).collect());
            put(Columns::KEYS, keys.0);
            put(Columns::VALUES, values.0);
            put(Columns::HEADERS, headers.0);
            put(Columns::KEYS, keys.1);
            put(Columns::VALUES, values.1);
            put(Columns::HEADERS, headers.1);
            assert_eq!(has.has(Columns::ABSENT_KEYS), columns.has(Columns::KEYS) && !keys.2.is_empty());
            assert_eq!(has.has(Columns::ABSENT_VALUES), columns.has(Columns::VALUES) && !values.2.is_empty());
            put(Columns::ABSENT_KEYS, keys.2);
            put(Columns::ABSENT_VALUES, values.2);
            assert_eq!(data, expected, "{columns}");
        }
    }
}

#[test]
fn s111_no_byte_of_a_value_comes_into_the_memory_of_an_operator_that_did_not_ask_for_values() {
    const MARK: &[u8] = b"no guest has asked for this value";
    let is_in = |memory: &[u8]| memory.windows(8).any(|window| window == &MARK[..8]);
    for bits in 0..32 {
        let columns = Columns::from_bits(bits).unwrap();
        let mut instance = asking(columns);
        let mut rows = Batch::default();
        (0..100).for_each(|n| rows.push(n, b"key", MARK));
        let emitted = carry_out(&mut instance, &[Command::Forward(0, vec![7, 3]), Command::Forward(1, vec![9])], &rows).unwrap();
        assert!(emitted.entries().all(|(_, rows)| rows.values.iter().all(|value| value == MARK)), "the value is forwarded");
        assert_eq!(is_in(&memory(&instance)), columns.has(Columns::VALUES), "{columns}");
    }
}

/// How a call ends that carries these commands out; nothing of it is left.
fn refused(commands: &[Command], rows: &Batch) -> Trap {
    let mut instance = asking(Columns::ROWS);
    instance.keep_to(KeyShare { group: key_group_of(b"mine", 128), key_groups: 128, keyed_inputs: vec![false, false] });
    let mut all = vec![Command::Forward(0, vec![0])];
    all.extend_from_slice(commands);
    tell(&mut instance, &all);
    let mut emitted = EmittedRows::new();
    emitted.rows_to(1).push(1, b"", b"before");
    let error = instance.process(ROWS, rows.view(), &mut emitted).unwrap_err();
    assert_eq!(emitted.rows_len(), 1, "nothing of the call is left");
    let CallError::Trapped(trap) = error else { panic!("{error}") };
    trap
}

#[test]
fn s113_what_breaks_the_contract_is_a_clear_error_and_no_wrong_row() {
    let has = |columns: Columns| u32::from(columns.bits());
    let (times, values) = (Columns::TIMESTAMPS, Columns::VALUES);
    let one = |value: &[u8]| [vec![0; 8], le([value.len() as u32]), value.to_vec()].concat();
    let with_key = |key: &[u8]| [vec![0; 8], le([key.len() as u32, 0]), key.to_vec()].concat();
    let emit = |columns: Columns, data: Vec<u8>| Command::Raw(0, [1, has(columns)], data);
    let cases: Vec<(Command, &str)> = vec![
        (emit(times | values | Columns::HASHES, [vec![0; 16], le([0])].concat()), "hashes are the host's"),
        (emit(values, le([0])), "timestamps and values have to be there"),
        (emit(times | Columns::KEYS, [vec![0; 8], le([0])].concat()), "timestamps and values have to be there"),
        (emit(times | values | Columns::ABSENT_KEYS, [one(b""), vec![1]].concat()), "bits of absent keys without keys"),
        (emit(times | values | Columns::ABSENT_VALUES, [one(b"x"), vec![1]].concat()), "value of row 0 is absent, and has bytes"),
        (emit(times | values, [one(b"x"), vec![0]].concat()), "1 of the 14 bytes belong to no column"),
        (emit(times | values, one(b"x")[..12].to_vec()), "the values take 1 bytes, and 0 are left"),
        (Command::Raw(0, [2, has(times | values)], [vec![0; 16], le([1, 0])].concat()), "ends never fall"),
        (
            emit(times | values | Columns::HEADERS, [vec![0; 8], le([0, 3]), vec![0; 3]].concat()),
            "headers of row 0 are malformed",
        ),
        (Command::Raw(0, [u32::MAX, has(times | values)], Vec::new()), "the timestamps take"),
        (Command::Forward(3, vec![0]), "port 3 is not described: the component has 3 outputs"),
        (Command::EmitValues(9, vec![0], vec![None]), "port 9 is not described"),
        (Command::Raw(u32::MAX, [1, has(times | values)], one(b"")), "is not described"),
        (Command::Forward(0, vec![0, 2]), "row 2 is not one of the 2 rows"),
        (Command::EmitValues(0, vec![u32::MAX], vec![Some(vec![])]), "is not one of the 2 rows"),
        (Command::RawForward(0, vec![0; 5]), "5 bytes are no whole number"),
        (Command::RawValues(0, le([0]), le([1])), "the values take 1 bytes, and 0 are left"),
        (Command::RawValues(0, le([0, 1]), le([2, 1])), "ends never fall"),
        (Command::RawValues(0, le([0]), [le([1]), vec![7, 0, 0]].concat()), "2 bytes follow the last of 1 values"),
        (Command::RawValues(0, le([0]), [le([1]), vec![7, 1]].concat()), "value of row 0 is absent, and has bytes"),
        (
            Command::Raw(2, [1, has(times | values)], one(b"")),
            "the key of row 0 is not of this instance's key group, but output `out2` is described as keeps-key",
        ),
        (Command::Raw(2, [1, has(Columns::ROWS)], with_key(b"another")), "key of row 0 is not of this instance's key group"),
        (Command::Forward(2, vec![0, 1]), "output.forward: the key of row 1 is not of this instance's key group"),
        (Command::EmitValues(2, vec![1], vec![None]), "output.emit-values: the key of row 0 is not of this instance's key group"),
    ];
    assert_ne!(key_group_of(b"mine", 128), key_group_of(b"another", 128));
    let mut rows = Batch::default();
    rows.push(1, b"mine", b"a");
    rows.push(2, b"another", b"b");
    for (command, why) in cases {
        let trap = refused(std::slice::from_ref(&command), &rows);
        assert!(trap.kind == TrapKind::Contract && trap.message.contains(why), "{command:?}: {trap}");
    }
}

#[test]
fn s113_rows_that_keep_their_key_pass_and_those_of_keyed_inputs_are_not_looked_at() {
    let mut rows = Batch::default();
    rows.push(1, b"mine", b"a");
    let group = key_group_of(b"mine", 128);
    let commands = [Command::Forward(2, vec![0]), Command::EmitValues(2, vec![0], vec![None]), Command::Emit(2, rows.clone())];
    for keyed in [false, true] {
        let mut instance = asking(Columns::NONE);
        instance.keep_to(KeyShare { group, key_groups: 128, keyed_inputs: vec![keyed, false] });
        assert_eq!(carry_out(&mut instance, &commands, &rows).unwrap().rows_len(), 3);
    }
    // An instance that is not keyed is given any key.
    assert_eq!(carry_out(&mut asking(Columns::NONE), &commands, &rows).unwrap().rows_len(), 3);
}

#[test]
fn rows_of_a_call_can_be_named_during_process_only() {
    for command in [Command::Forward(0, vec![]), Command::EmitValues(0, vec![], vec![])] {
        let mut instance = asking(Columns::ROWS);
        carry_out(&mut instance, std::slice::from_ref(&command), &rows(&[(1, 1)])).unwrap();
        let CallError::Trapped(trap) = instance.advance(5, &mut EmittedRows::new()).unwrap_err() else { panic!() };
        assert!(trap.kind == TrapKind::Contract && trap.message.contains("during process only"), "{trap}");
    }
    let mut instance = asking(Columns::ROWS);
    tell(&mut instance, &[Command::Emit(1, rows(&[(1, 1)]))]);
    let mut emitted = EmittedRows::new();
    instance.advance(5, &mut emitted).unwrap();
    instance.finish(&mut emitted).unwrap();
    assert_eq!(emitted.rows_len(), 2);
}

#[test]
fn what_is_gathered_counts_before_it_is_copied_and_rows_that_repeat_are_counted_each_time() {
    let mut rows = Batch::default();
    rows.push(1, b"mine", &vec![7; 1 << 20]);
    let again = |times: usize| vec![0; times];
    let trap = refused(&[Command::Forward(0, again(64))], &rows);
    assert!(trap.kind == TrapKind::Limit && trap.message.contains("more than 67108864 bytes"), "{trap}");
    let mut instance = asking(Columns::NONE);
    let emitted = carry_out(&mut instance, &[Command::Forward(0, again(31)), Command::Forward(1, again(31))], &rows).unwrap();
    assert_eq!(emitted.rows_len(), 62);
    // Each row costs as much as it is, although the whole batch was looked at first.
    let mut rows = Batch::default();
    (0..8).for_each(|n| rows.push(n, b"", &vec![7; 1 << 17]));
    let commands = vec![Command::Forward(0, vec![0, 1, 2]); 128];
    assert_eq!(carry_out(&mut instance, &commands, &rows).unwrap().rows_len(), 3 * 128);
}

#[test]
fn columns_that_open_cannot_ask_for_or_that_are_not_those_of_the_inputs_are_refused() {
    let error = scripted(&char::from(b'@' + 0b10_0001).to_string()).err().unwrap().to_string();
    assert!(error.contains("open asked for absent-keys of input `in0`, which come by themselves"), "{error}");
    let (limits, events) = (InstanceLimits::default(), Arc::new(Events::default()));
    let error = Template::open(&SCRIPTED, &described_with(3), &context("G"), &limits, events).err().unwrap().to_string();
    assert!(error.contains("open asked for the columns of 2 inputs, and 3 are described"), "{error}");
}

#[test]
fn the_columns_come_back_with_a_stored_template_without_the_guest() {
    let template = scripted("D").unwrap();
    let (limits, image) = (InstanceLimits::default(), template.encode());
    let decode = |image: &[u8]| Template::decode(&SCRIPTED, &script_description(), image, &limits, Arc::new(Events::default()));
    let again = decode(&image).unwrap();
    assert_eq!(again.columns(ROWS), Some(Columns::VALUES));
    let mut instance = Instance::new(&again).unwrap();
    carry_out(&mut instance, &[], &rows(&[(1, 9)])).unwrap();
    assert_eq!(came(&instance).0, Columns::VALUES);
    for byte in 0..3 {
        let mut other = image.clone();
        other[byte] ^= 2;
        assert!(decode(&other).is_err(), "byte {byte}");
    }
    assert!(decode(&[]).is_err() && decode(&[200, 1]).is_err());
}

#[test]
fn no_import_may_be_called_while_the_host_asks_for_room() {
    let trap = match scripted("Gt").map(|template| Instance::new(&template).unwrap()) {
        Ok(mut instance) => match instance.process(ROWS, rows(&[(1, 1)]).view(), &mut EmittedRows::new()) {
            Err(CallError::Trapped(trap)) => trap,
            other => panic!("{other:?}"),
        },
        Err(error) => panic!("{error}"),
    };
    assert!(trap.kind == TrapKind::Contract && trap.message.contains("cannot leave component instance"), "{trap}");
}

#[test]
fn an_input_that_is_not_described_is_an_error_of_whoever_calls() {
    let error = asking(Columns::ROWS).process(2, rows(&[(1, 1)]).view(), &mut EmittedRows::new()).unwrap_err();
    assert!(error.to_string().contains("it has no input 2"), "{error}");
}
