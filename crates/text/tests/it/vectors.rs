//! Compares 8-bit vectors with exact ones.

use proptest::prelude::*;
use toolyard_text::embedding::{DIMENSIONS, Quantised, StaticEmbedder, Vector, VectorTable, cosine};

fn unit(seed: u64) -> Vector {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut vector: Vector = std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    });
    let norm = cosine(&vector, &vector).sqrt();
    vector.iter_mut().for_each(|x| *x /= norm);
    vector
}

#[test]
fn rounding_moves_a_cosine_by_less_than_a_hundredth() {
    for seed in 1..500 {
        let (a, b) = (unit(seed), unit(seed * 7 + 3));
        let rounded = Quantised::new(&a).dot(&Quantised::new(&b));
        assert!((rounded - cosine(&a, &b)).abs() < 0.01, "{rounded} {}", cosine(&a, &b));
    }
}

#[test]
fn the_nearest_are_those_a_full_sort_finds() {
    let mut table = VectorTable::with_capacity(1_000);
    (0..1_000).for_each(|seed| table.push(Some(&unit(seed + 1))));
    let query = Quantised::new(&unit(77));
    for count in [0, 1, 7, 100, 999, 5_000] {
        let even = |number: usize| number.is_multiple_of(2);
        let mut all = Vec::new();
        table.scan(&query, |number, likeness| all.push((number, likeness)));
        all.retain(|(number, _)| even(*number));
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(count);
        assert_eq!(table.nearest(&query, count, even), all);
    }
}

#[test]
fn vectors_are_replaced_and_removed_in_place() {
    let mut table = VectorTable::new();
    (1..=4).for_each(|seed| table.push(Some(&unit(seed))));
    table.push(None);
    let at = |table: &VectorTable, seed| table.nearest(&Quantised::new(&unit(seed)), 1, |_| true)[0];
    assert_eq!(at(&table, 2).0, 1);
    assert!(table.replace(1, &Quantised::new(&unit(9))));
    assert_eq!(at(&table, 9).0, 1);
    assert!(table.swap_remove(0));
    assert!(at(&table, 9).1 > 0.99 && table.len() == 4);
    assert_eq!(table.get(0).expect("the empty one moved there").scale(), 0.0);
    assert!(!table.swap_remove(4) && !table.replace(4, &Quantised::new(&unit(1))));
}

#[test]
fn parts_that_were_stored_give_the_same_vector() {
    let made = Quantised::new(&StaticEmbedder::shared().embed("a stored text", None).expect("known"));
    assert_eq!(Quantised::from_parts(*made.values(), made.scale()), made);
}

proptest! {
    #[test]
    fn any_numbers_are_rounded_without_panic(numbers in proptest::collection::vec(any::<f32>(), DIMENSIONS)) {
        let vector: Vector = std::array::from_fn(|i| numbers[i]);
        let rounded = Quantised::new(&vector);
        let mut table = VectorTable::new();
        table.push(Some(&vector));
        table.nearest(&rounded, 3, |_| true);
    }
}
