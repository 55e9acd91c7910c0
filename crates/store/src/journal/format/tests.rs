use super::*;
use crate::queue::StoredFrame;
use toolyard_engine::store::RunKind;
use toolyard_protocol::RunStatus;

fn append(seq: u32) -> Append {
    let run_id = RunId::from_uuid(uuid::Uuid::from_u128(7));
    let row = RunRow {
        run_id,
        kind: RunKind::Plan,
        status: RunStatus::Running,
        title: "тест".into(),
        session: Some("s".into()),
        started_at: "2026-01-02T03:04:05.123456789Z".parse().unwrap(),
        ended_at: None,
    };
    let blob = StoredBlob { sha256: [1; 32], len: 3, is_zstd: false, bytes: Some(b"abc".to_vec()) };
    let file = StoredBlob { sha256: [2; 32], len: 1 << 21, is_zstd: true, bytes: None };
    let frame = StoredFrame { seq, kind: 257, payload: vec![b'x'; 20], chain: [9; 32] };
    Append { run_id, frames: vec![frame], blobs: Blobs::Ready(vec![blob, file]), row: Some(row), release: false }
}

/// Entries as (generation, number, first number of the group).
fn entries_of(places: &[(u64, u32, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (generation, number, group_first) in places {
        let append = append(number + 1);
        let Blobs::Ready(blobs) = &append.blobs else { unreachable!() };
        encode(&mut bytes, EntryPosition { generation: *generation, number: *number }, *group_first, &append, blobs);
    }
    bytes
}

/// A file with these entries and room behind them.
fn file(places: &[(u64, u32, u32)], room: usize) -> Vec<u8> {
    let entries = entries_of(places);
    let length = ENTRIES_AT + entries.len() + room;
    let mut bytes = file_header(uuid::Uuid::from_u128(5), length as u64);
    bytes.extend_from_slice(&entries);
    bytes.resize(length, 0);
    bytes
}

fn read(bytes: &[u8], done: Option<EntryPosition>) -> Result<Vec<u32>, Damage> {
    entries(bytes, done).map(|found| found.new.iter().map(|(place, _)| place.number).collect())
}

const DONE: Option<EntryPosition> = Some(EntryPosition { generation: 4, number: 9 });

#[test]
fn an_entry_comes_back_as_it_was() {
    let found = entries(&file(&[(3, 0, 0)], 4096), None).unwrap();
    let (expected, back) = (append(1), &found.new[0].1);
    assert_eq!((found.new.len(), found.last), (1, EntryPosition { generation: 3, number: 0 }));
    assert_eq!((back.run_id, &back.row, back.release), (expected.run_id, &expected.row, false));
    let (Blobs::Ready(one), Blobs::Ready(two)) = (&back.blobs, &expected.blobs) else { unreachable!() };
    let plain = |blobs: &[StoredBlob]| -> Vec<_> {
        blobs.iter().map(|b| (b.sha256, b.len, b.is_zstd, b.bytes.clone())).collect()
    };
    assert_eq!(plain(one), plain(two));
    let frame = &back.frames[0];
    assert_eq!((frame.seq, frame.kind, frame.payload.len(), frame.chain), (1, 257, 20, [9; 32]));
}

#[test]
fn what_an_older_generation_left_is_not_taken_up() {
    let both = file(&[(5, 0, 0), (5, 1, 1), (4, 8, 8), (4, 9, 9)], 64);
    assert_eq!(read(&both, DONE), Ok(vec![0, 1]));
    // The first group of a new generation was torn: what is whole behind it is in the database.
    let mut torn = file(&[(5, 0, 0), (4, 7, 7), (4, 8, 8), (4, 9, 9)], 64);
    torn[ENTRIES_AT + 40] ^= 1;
    assert_eq!(read(&torn, DONE), Ok(vec![]));
    let mut torn = file(&[(5, 0, 0), (5, 1, 0), (4, 8, 8), (4, 9, 9)], 64);
    torn[ENTRIES_AT + 40] ^= 1;
    assert_eq!(read(&torn, DONE), Ok(vec![]), "the second entry of the torn group is whole");
    assert_eq!(read(&file(&[], 8192), None), Ok(vec![]), "zeros are no entries");
}

#[test]
fn what_the_database_has_is_not_moved_again() {
    let whole = file(&[(4, 8, 8), (4, 9, 9), (4, 10, 10), (4, 11, 11)], 64);
    assert_eq!(read(&whole, DONE), Ok(vec![10, 11]));
    let one = entries_of(&[(4, 8, 8)]).len();
    let mut damaged = whole.clone();
    damaged[ENTRIES_AT + one + 50] ^= 1;
    assert_eq!(read(&damaged, DONE), Ok(vec![10, 11]), "entry 9 is damaged and in the database");
    damaged[ENTRIES_AT + 2 * one + 50] ^= 1;
    assert_eq!(read(&damaged, DONE), Err(Damage::Entry(10)), "entry 10 is not");
}

/// Entries 0 and 1 were synced together, then 2, then 3 and 4 together.
const GROUPS: [(u64, u32, u32); 5] = [(1, 0, 0), (1, 1, 0), (1, 2, 2), (1, 3, 3), (1, 4, 3)];

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let whole = file(&GROUPS, 64);
    let one = entries_of(&GROUPS[..1]).len();
    assert_eq!(read(&whole, None), Ok(vec![0, 1, 2, 3, 4]));
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            let found = read(&damaged, None);
            let context = format!("bit {bit} of byte {at}: {found:?}");
            let is_header = at < FILE_HEADER;
            let entry = at.checked_sub(ENTRIES_AT).map(|at| at / one).filter(|entry| *entry < GROUPS.len());
            match entry {
                _ if is_header => assert!(found.is_err(), "{context}"),
                // The last group looks as a crash leaves it, and its whole beginning is kept.
                Some(3) => assert_eq!(found, Ok(vec![0, 1, 2]), "{context}"),
                Some(4) => assert_eq!(found, Ok(vec![0, 1, 2, 3]), "{context}"),
                Some(entry) => assert_eq!(found, Err(Damage::Entry(entry as u32)), "{context}"),
                None => assert_eq!(found, Ok(vec![0, 1, 2, 3, 4]), "{context}"),
            }
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let whole = file(&GROUPS, 64);
    for at in 0..whole.len() {
        let found = read(&whole[..at], None);
        assert!(matches!(found, Err(Damage::NoHeader | Damage::Short(_))), "{at}: {found:?}");
    }
}

#[test]
fn a_crash_during_the_last_write_loses_nothing_that_was_synced() {
    let whole = file(&GROUPS, 64);
    let one = entries_of(&GROUPS[..1]).len();
    // Any bytes of the last group may be missing, in any order of blocks.
    let last = ENTRIES_AT + 3 * one;
    for at in last..last + 2 * one {
        let mut torn = whole.clone();
        torn[at..last + 2 * one].fill(0);
        let found = read(&torn, None).unwrap();
        assert!(found.starts_with(&[0, 1, 2]) && (found.len() < 5 || torn == whole), "{at}: {found:?}");
        let mut torn = whole.clone();
        torn[last..=at].fill(0);
        assert!(read(&torn, None).unwrap().starts_with(&[0, 1, 2]), "{at}");
    }
}

#[test]
fn an_entry_that_is_whole_and_makes_no_sense_stops_the_reading() {
    let mut bytes = file(&[], 4096);
    let entry = frame(EntryPosition { generation: 1, number: 0 }, b"no append");
    bytes[ENTRIES_AT..ENTRIES_AT + entry.len()].copy_from_slice(&entry);
    assert_eq!(read(&bytes, None), Err(Damage::Undecodable(0)));
}

#[test]
fn a_newer_version_is_refused() {
    let mut bytes = file(&GROUPS, 64);
    bytes[8] = 9;
    let sum = crc32fast::hash(&bytes[..FILE_HEADER - 4]);
    bytes[FILE_HEADER - 4..FILE_HEADER].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read(&bytes, None), Err(Damage::Newer(9)));
}

#[test]
fn a_retired_journal_is_told_from_one_that_was_used_since() {
    let mut bytes = file(&[(6, 0, 0)], 4096);
    assert!(!is_retired(&bytes));
    let mark = retired(EntryPosition { generation: 6, number: 0 });
    bytes[RETIRED_AT..RETIRED_AT + mark.len()].copy_from_slice(&mark);
    assert!(is_retired(&bytes));
    let newer = entries_of(&[(7, 0, 0)]);
    bytes[ENTRIES_AT..ENTRIES_AT + newer.len()].copy_from_slice(&newer);
    assert!(!is_retired(&bytes));
    assert!(is_retired(&file(&[], 64)), "nothing was ever written");
    assert!(!is_retired(&bytes[..100]), "a file that is cut short is looked at");
}
