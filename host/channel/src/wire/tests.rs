use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use weir_model::{Attempt, Barrier, BarrierKind, Batch, CheckpointId, KeyedBatch, Partitioner, RowRef, limits, push_header};

use super::fuzz;
use super::{Decoder, HEADER_BYTES, WireError, decode_all, encode, encode_to_vec};
use crate::Frame;

fn barrier(kind: BarrierKind, unaligned: bool) -> Frame {
    Frame::Barrier(Barrier { attempt: Attempt(3), checkpoint: CheckpointId(u64::MAX - 1), kind, unaligned })
}

fn keyed(rows: &Batch, key_groups: u16) -> KeyedBatch {
    let mut all = KeyedBatch::default();
    Partitioner::new(key_groups, 1).partition(rows.view(), |_, keyed| all = keyed);
    all
}

type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<u8>);

fn rows_of(frames: &[Frame]) -> Vec<Row> {
    let owned =
        |row: RowRef<'_>| (row.timestamp, row.key.map(<[u8]>::to_vec), row.value.map(<[u8]>::to_vec), row.headers.to_vec());
    let mut all = Vec::new();
    for frame in frames {
        match frame {
            Frame::Rows(rows) => all.extend(rows.rows().map(owned)),
            Frame::Keyed(rows) => rows.sections().for_each(|(_, section)| all.extend(section.rows().map(owned))),
            other => panic!("no rows: {other:?}"),
        }
    }
    all
}

fn headers(value: &[u8]) -> Vec<u8> {
    let mut headers = Vec::new();
    push_header(&mut headers, b"trace", value);
    headers
}

fn joined(pieces: &[Bytes]) -> Vec<u8> {
    pieces.concat()
}

prop_compose! {
    /// Plain rows, or some of them with what needs extras.
    fn batch()(odd in any::<bool>())(rows in prop::collection::vec((
        any::<i64>(), prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..12)),
        prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..200)),
        prop::option::weighted(0.2, prop::collection::vec(any::<u8>(), 0..20)),
    ), 1..120), odd in Just(odd)) -> Batch {
        let mut batch = Batch::default();
        for (time, key, value, header) in rows {
            if odd {
                let headers = header.map(|value| headers(&value)).unwrap_or_default();
                batch.push_row(RowRef { timestamp: time, key: key.as_deref(), value: value.as_deref(), headers: &headers });
            } else {
                batch.push(time, &key.unwrap_or_default(), &value.unwrap_or_default());
            }
        }
        batch
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        4 => batch().prop_map(|rows| Frame::Rows(Arc::new(rows))),
        4 => (batch(), 1..=limits::KEY_GROUPS_MAX).prop_map(|(rows, groups)| Frame::Keyed(keyed(&rows, groups))),
        1 => any::<i64>().prop_map(Frame::Watermark),
        1 => Just(Frame::Idle),
        1 => Just(Frame::End),
        1 => any::<bool>().prop_map(|unaligned| barrier(BarrierKind::Checkpoint, unaligned)),
        1 => any::<bool>().prop_map(|unaligned| barrier(BarrierKind::Stop, unaligned)),
    ]
}

proptest! {
    #[test]
    fn s114_frames_come_back_as_they_were_in_pieces_of_any_size(frames in prop::collection::vec(frame(), 0..6), piece in 1usize..5_000) {
        let mut pieces = Vec::new();
        for frame in &frames {
            let before = pieces.len();
            let len = encode(frame.clone(), &mut pieces).unwrap();
            prop_assert_eq!(joined(&pieces[before..]), encode_to_vec(frame).unwrap());
            prop_assert_eq!(len, encode_to_vec(frame).unwrap().len());
        }
        let bytes = joined(&pieces);
        prop_assert_eq!(&decode_all(&bytes).unwrap(), &frames);

        let mut decoder = Decoder::new();
        let mut decoded = Vec::new();
        for mut piece in bytes.chunks(piece) {
            while !piece.is_empty() {
                decoded.extend(decoder.push(&mut piece).unwrap());
            }
        }
        prop_assert!(decoder.is_between_frames());
        prop_assert_eq!(decoded, frames);
    }

    #[test]
    fn what_is_cut_off_is_not_taken_for_whole(frame in frame(), cut in any::<prop::sample::Index>()) {
        let bytes = encode_to_vec(&frame).unwrap();
        let cut = cut.index(bytes.len() - 1) + 1;
        prop_assert_eq!(decode_all(&bytes[..cut.min(bytes.len() - 1)]), Err(WireError::Truncated));
    }

    #[test]
    fn changed_bytes_never_panic_and_what_is_accepted_is_well_formed(
        frame in frame(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode_to_vec(&frame).unwrap();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        fuzz::frames(&bytes);
    }

    #[test]
    fn lies_behind_a_good_checksum_never_panic_nor_allocate_beyond_the_bounds(
        kind in 0u8..8, flags in 0u16..6, small in any::<bool>(), sizes in prop::array::uniform4(prop_oneof![0u32..300, any::<u32>()]),
        mut words in prop::array::uniform2(any::<u64>()), body in prop::collection::vec(any::<u8>(), 0..3_000),
    ) {
        if small {
            words = [words[0] % 300, 0];
        }
        let mut bytes = header(kind, flags, sizes, words);
        bytes.extend(body);
        fuzz::frames(&bytes);
    }
}

fn header(kind: u8, flags: u16, sizes: [u32; 4], words: [u64; 2]) -> Vec<u8> {
    let mut bytes = b"WEIR\x02".to_vec();
    bytes.push(kind);
    bytes.extend(flags.to_le_bytes());
    bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes);
    bytes.extend(checksum.to_le_bytes());
    assert_eq!(bytes.len(), HEADER_BYTES);
    bytes
}

#[test]
fn the_bytes_never_change() {
    let mut rows = Batch::default();
    rows.push(1, b"k", b"value");
    rows.push(-2, b"", b"");
    let columns = "0100000000000000feffffffffffffff 01000000 01000000 05000000 05000000 6b 76616c7565";
    let mut odd = rows.clone();
    odd.truncate(1);
    odd.push_row(RowRef { timestamp: -2, key: None, value: None, headers: &headers(b"x") });
    let odd_columns = "0100000000000000feffffffffffffff 01000000 01000000 05000000 05000000 00000000 0e000000 00 03 6b 76616c7565 \
                       05000000 01000000 7472616365 78";
    let golden = [
        (Frame::Idle, "574549520204000000000000000000000000000000000000 0000000000000000 0000000000000000", ""),
        (Frame::Watermark(-1), "574549520203000000000000000000000000000000000000 ffffffffffffffff 0000000000000000", ""),
        (
            barrier(BarrierKind::Stop, true),
            "574549520205030000000000000000000000000000000000 0300000000000000 feffffffffffffff",
            "",
        ),
        (Frame::End, "574549520206000000000000000000000000000000000000 0000000000000000 0000000000000000", ""),
        (
            Frame::Rows(Arc::new(rows.clone())),
            "574549520201000002000000000000000100000005000000 0000000000000000 0000000000000000",
            columns,
        ),
        (
            Frame::Keyed(keyed(&rows, 1)),
            "574549520202000002000000010000000100000005000000 0000000000000000 0000000000000000",
            &format!("00000000 02000000 01000000 05000000 00000000 {columns}"),
        ),
        (
            Frame::Rows(Arc::new(odd.clone())),
            "574549520201010002000000000000000100000005000000 0e00000000000000 0000000000000000",
            odd_columns,
        ),
        (
            Frame::Keyed(keyed(&odd, 1)),
            "574549520202010002000000010000000100000005000000 0e00000000000000 0000000000000000",
            &format!("00000000 02000000 01000000 05000000 0e000000 {odd_columns}"),
        ),
    ];
    for (frame, fixed, rest) in golden {
        let bytes = encode_to_vec(&frame).unwrap();
        assert_eq!(hex(&bytes[..HEADER_BYTES - 8]), fixed.replace(' ', ""), "{frame:?}");
        assert_eq!(hex(&bytes[HEADER_BYTES..]), rest.replace(' ', ""), "{frame:?}");
    }
    assert_eq!(hex(&encode_to_vec(&Frame::Idle).unwrap()[HEADER_BYTES - 8..]), "3ba049c25572ff02", "checksum");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn large_columns_are_not_copied() {
    let mut rows = Batch::default();
    (0..1_000).for_each(|time| rows.push(time, b"key", &[7; 100]));
    let rows = Arc::new(rows);
    let mut pieces = Vec::new();
    encode(Frame::Rows(rows.clone()), &mut pieces).unwrap();
    assert!(pieces.iter().any(|piece| piece.as_ptr() == rows.values.bytes.as_ptr()));
    assert_eq!(Arc::strong_count(&rows), 1 + 5, "each column keeps the rows alive");
    drop(pieces);
    assert_eq!(Arc::strong_count(&rows), 1);
}

#[test]
fn s114_rows_beyond_a_frame_become_several_frames_within_the_bounds() {
    let mut rows = Batch::default();
    (0..limits::FRAME_ROWS_MAX + 10).for_each(|row| rows.push(row as i64, &(row as u16 % 3).to_le_bytes(), b"v"));
    let mut large = Batch::default();
    (0..40).for_each(|row| large.push(row, b"k", &vec![row as u8; 1 << 20]));
    let mut odd = Batch::default();
    for row in 0..300i64 {
        let (value, key) = (vec![row as u8; 60_000], (row as u16 % 5).to_le_bytes());
        let headers = if row % 4 == 0 { headers(&[row as u8; 60_000]) } else { Vec::new() };
        let value = (row % 7 != 0).then_some(&value[..]);
        odd.push_row(RowRef { timestamp: row, key: (row % 3 != 0).then_some(&key[..]), value, headers: &headers });
    }
    let headers_alone = |rows: &Batch| rows.extras.as_ref().map_or(0, |extras| extras.headers.bytes.len());
    assert!(headers_alone(&odd) > limits::FRAME_BYTES_TARGET);
    let mut long = Batch::default();
    (0..400).for_each(|row| long.push_row(RowRef { headers: &headers(&[1; 60_000]), ..RowRef::new(row, b"k", b"") }));
    for rows in [rows, large, odd, long] {
        for frame in [Frame::Keyed(keyed(&rows, 8)), Frame::Rows(Arc::new(rows))] {
            let mut pieces = Vec::new();
            encode(frame.clone(), &mut pieces).unwrap();
            let frames = decode_all(&joined(&pieces)).unwrap();
            assert!(frames.len() > 1);
            assert_eq!(rows_of(&frames), rows_of(&[frame]));
        }
    }
}

#[test]
fn a_row_no_frame_can_carry_is_named() {
    let mut rows = Batch::default();
    rows.push(0, b"", b"");
    rows.push(0, b"", &vec![0; limits::FRAME_BYTES_MAX + 1]);
    let mut pieces = Vec::new();
    let error = encode(Frame::Rows(Arc::new(rows)), &mut pieces).unwrap_err();
    assert!(matches!(error, WireError::Row { row: 1, .. }), "{error}");
    assert!(pieces.is_empty());

    let mut rows = Batch::default();
    let (long, most) = (headers(&vec![0; limits::HEADERS_BYTES_MAX]), headers(&vec![0; limits::HEADERS_BYTES_MAX - 13]));
    (0..400).for_each(|time| {
        rows.push_row(RowRef { headers: if time == 399 { &long } else { &most }, ..RowRef::new(time, b"", b"") });
    });
    for frame in [Frame::Keyed(keyed(&rows, 1)), Frame::Rows(Arc::new(rows))] {
        let error = encode(frame, &mut pieces).unwrap_err();
        assert!(matches!(error, WireError::Row { row: 399, header_bytes: 65_549, .. }), "{error}");
    }
}

#[test]
fn sizes_beyond_the_bounds_are_refused_from_the_header_alone() {
    let max = limits::FRAME_BYTES_MAX as u32;
    for (sizes, what) in [
        ([limits::FRAME_ROWS_MAX as u32 + 1, 0, 0, 0], "rows"),
        ([1, 0, u32::MAX, u32::MAX], "bytes"),
        ([1, 0, 1, max], "bytes"),
        ([3, 4, 0, 0], "sections"),
    ] {
        let error = Decoder::new().push(&mut &*header(1, 0, sizes, [0, 0])).unwrap_err();
        assert!(matches!(error, WireError::TooLarge { what: found, .. } if found == what), "{error}");
    }
    assert_eq!(Decoder::new().push(&mut &*header(1, 0, [1, 0, 0, max], [0, 0])), Ok(None), "the largest is awaited");
}

#[test]
fn s114_contradictions_are_named() {
    let error = |bytes: &[u8]| decode_all(bytes).unwrap_err().to_string();
    assert_eq!(error(&[b'x'; HEADER_BYTES]), "not a frame: it starts with [78, 78, 78, 78] instead of \"WEIR\"");
    let mut newer = encode_to_vec(&Frame::End).unwrap();
    newer[4] = 9;
    assert_eq!(error(&newer), "the frame has format version 9, this program reads version 2");
    let mut damaged = encode_to_vec(&Frame::End).unwrap();
    damaged[30] = 9;
    assert!(error(&damaged).contains("checksum"));
    assert!(error(&header(1, 0, [0, 0, 0, 0], [0, 0])).contains("no rows"));
    assert!(error(&header(4, 1, [0, 0, 0, 0], [0, 0])).contains("flags"));
    assert!(error(&header(3, 0, [0, 0, 0, 0], [1, 1])).contains("does not use"));
    let mut ends = header(1, 0, [1, 0, 0, 0], [0, 0]);
    ends.extend([0; 8]);
    ends.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(error(&ends), "the ends of the keys disagree with their bytes");

    assert!(error(&header(1, 1, [1, 0, 0, 0], [u64::MAX, 0])).contains("more than the limit"), "of headers");
    assert!(error(&header(1, 0, [1, 0, 0, 0], [1, 0])).contains("does not use"), "headers without the flag");
    let extras = |kind: u8, headers: &[u8], absent: u8| {
        let sections: &[u8] =
            if kind == 2 { &[0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, headers.len() as u8, 0, 0, 0] } else { &[] };
        let mut bytes = header(kind, 1, [1, u32::from(kind == 2), 1, 0], [headers.len() as u64, 0]);
        [sections, &[0; 8], &[1, 0, 0, 0, 0, 0, 0, 0], &[headers.len() as u8, 0, 0, 0, absent], b"k", headers]
            .iter()
            .for_each(|part| bytes.extend_from_slice(part));
        decode_all(&bytes).map(|frames| rows_of(&frames))
    };
    for kind in [1, 2] {
        let wrong = |headers: &[u8], absent| extras(kind, headers, absent).unwrap_err().to_string();
        let good = headers(b"x");
        assert_eq!(extras(kind, &good, 2), Ok(vec![(0, Some(b"k".to_vec()), None, good.clone())]));
        assert!(wrong(b"", 0).contains("no row has any"));
        let of_the_row = ["disagree with their bytes", "disagree with its bytes"][usize::from(kind == 2)];
        assert!(wrong(b"", 1).contains(of_the_row), "an absent key with a byte: {}", wrong(b"", 1));
        assert!(wrong(b"", 4).contains(of_the_row), "an unknown bit");
        assert!(wrong(&good[..13], 0).contains(of_the_row), "headers that are cut");
    }
}
