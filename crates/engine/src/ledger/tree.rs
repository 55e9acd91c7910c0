//! The Merkle tree of RFC 6962 (and C2SP tlog-tiles): hashes, the right edge of a growing tree, and proofs.
//!
//! Pure: knows hashes and numbers, no store and no leaf's meaning.

use sha2::{Digest, Sha256};

/// A hash of a leaf or of a subtree.
pub type Hash = [u8; 32];

/// A proof has one hash a level; no tree of ours has more leaves than this many levels hold.
pub const MAX_PROOF: usize = 64;

/// The hash of a leaf's bytes.
pub fn leaf_hash(data: &[u8]) -> Hash {
    let mut h = Sha256::new();
    h.update([0]);
    h.update(data);
    h.finalize().into()
}

/// The hash of two subtrees side by side.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut h = Sha256::new();
    h.update([1]);
    h.update(left);
    h.update(right);
    h.finalize().into()
}

/// The right edge of a tree: the roots of its complete subtrees, the largest first. All that is needed to add leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    nodes: Vec<Hash>,
}

impl Edge {
    /// The edge of a tree of this many leaves, or `None` when the number of subtrees does not fit.
    pub fn new(size: u64, nodes: Vec<Hash>) -> Option<Self> {
        (u32::try_from(nodes.len()).ok()? == size.count_ones()).then_some(Self { size, nodes })
    }

    /// How many leaves the tree has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the complete subtrees, the largest first.
    pub fn nodes(&self) -> &[Hash] {
        &self.nodes
    }

    /// Adds a leaf by its hash.
    pub fn push(&mut self, leaf: Hash) {
        self.push_and_catch(leaf, u32::MAX);
    }

    /// Adds a leaf and answers the root of the complete subtree of `2^level` leaves that ends with it, if there is one.
    pub fn push_and_catch(&mut self, leaf: Hash, level: u32) -> Option<Hash> {
        let mut node = leaf;
        let mut at = 0;
        let mut caught = (level == 0).then_some(node);
        while self.size >> at & 1 == 1
            && let Some(left) = self.nodes.pop()
        {
            node = node_hash(&left, &node);
            at += 1;
            if at == level {
                caught = Some(node);
            }
        }
        self.nodes.push(node);
        self.size += 1;
        caught
    }

    /// The root of the tree.
    pub fn root(&self) -> Hash {
        let mut nodes = self.nodes.iter().rev();
        match nodes.next() {
            Some(last) => nodes.fold(*last, |right, left| node_hash(left, &right)),
            None => Sha256::digest([]).into(),
        }
    }
}

/// Which complete subtree: `2^level` leaves, the `index`-th of that size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The logarithm of its number of leaves.
    pub level: u32,
    /// Its place among the subtrees of that size.
    pub index: u64,
}

impl Node {
    /// The last leaf in it.
    pub fn last_leaf(self) -> u64 {
        ((self.index + 1) << self.level) - 1
    }
}

/// The complete subtrees that make up the leaves from `begin` to before `end`, where `begin` is a multiple of the power
/// of two that the range is cut from: the left part of a tree, or its ragged right end.
fn cover(mut begin: u64, end: u64) -> Vec<Node> {
    let mut nodes = Vec::new();
    while begin < end {
        let largest = 63 - (end - begin).leading_zeros();
        nodes.push(Node { level: largest, index: begin >> largest });
        begin += 1 << largest;
    }
    nodes
}

/// The largest power of two that is smaller than `n`.
fn split(n: u64) -> u64 {
    1 << (63 - (n - 1).leading_zeros())
}

/// The parts of an inclusion proof (RFC 6962, 2.1.1): each is made of the complete subtrees named. `None` when there is
/// no such leaf.
pub fn inclusion_parts(leaf: u64, size: u64) -> Option<Vec<Vec<Node>>> {
    if leaf >= size {
        return None;
    }
    let mut parts = Vec::new();
    let (mut begin, mut end) = (0, size);
    while end - begin > 1 {
        let middle = begin + split(end - begin);
        if leaf < middle {
            parts.push(cover(middle, end));
            end = middle;
        } else {
            parts.push(cover(begin, middle));
            begin = middle;
        }
    }
    parts.reverse();
    Some(parts)
}

/// The parts of a proof that a tree of `new` leaves extends one of `old` leaves (RFC 6962, 2.1.2).
pub fn consistency_parts(old: u64, new: u64) -> Option<Vec<Vec<Node>>> {
    if old == 0 || old > new {
        return None;
    }
    let mut parts = Vec::new();
    let (mut begin, mut end) = (0, new);
    let mut is_whole = true; // whether the old tree began here, so that its root is known to the reader
    while old != end {
        let middle = begin + split(end - begin);
        if old <= middle {
            parts.push(cover(middle, end));
            end = middle;
        } else {
            parts.push(cover(begin, middle));
            begin = middle;
            is_whole = false;
        }
    }
    if !is_whole {
        parts.push(cover(begin, end));
    }
    parts.reverse();
    Some(parts)
}

/// The hash of one part, from the hashes of its complete subtrees.
pub fn part_hash(nodes: &[Hash]) -> Option<Hash> {
    let (last, before) = nodes.split_last()?;
    Some(before.iter().rev().fold(*last, |right, left| node_hash(left, &right)))
}

/// The root that an inclusion proof leads to, or `None` when the proof has the wrong shape (RFC 9162, 2.1.3.2).
pub fn root_of_inclusion(leaf: Hash, index: u64, size: u64, proof: &[Hash]) -> Option<Hash> {
    if index >= size || proof.len() > MAX_PROOF {
        return None;
    }
    let (mut place, mut last) = (index, size - 1);
    let mut hash = leaf;
    for sibling in proof {
        if last == 0 {
            return None;
        }
        if place & 1 == 1 || place == last {
            hash = node_hash(sibling, &hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        place >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

/// Whether a proof shows that the tree of `new` leaves extends the tree of `old` leaves (RFC 9162, 2.1.4.2).
pub fn extends(old: (u64, &Hash), new: (u64, &Hash), proof: &[Hash]) -> bool {
    let ((old_size, old_root), (new_size, new_root)) = (old, new);
    if old_size == new_size {
        return proof.is_empty() && old_root == new_root;
    }
    if old_size == 0 || old_size > new_size || proof.len() > MAX_PROOF {
        return false;
    }
    let mut proof = proof.iter();
    let first = if old_size.is_power_of_two() { Some(old_root) } else { proof.next() };
    let Some(first) = first else { return false };
    let (mut place, mut last) = (old_size - 1, new_size - 1);
    while place & 1 == 1 {
        place >>= 1;
        last >>= 1;
    }
    let (mut old_hash, mut new_hash) = (*first, *first);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            old_hash = node_hash(sibling, &old_hash);
            new_hash = node_hash(sibling, &new_hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = node_hash(&new_hash, sibling);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == *old_root && new_hash == *new_root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(n: u64) -> Hash {
        leaf_hash(&n.to_be_bytes())
    }

    /// The tree hash as RFC 6962 defines it.
    fn defined(begin: u64, end: u64) -> Hash {
        match end - begin {
            0 => Sha256::digest([]).into(),
            1 => leaf(begin),
            n => node_hash(&defined(begin, begin + split(n)), &defined(begin + split(n), end)),
        }
    }

    fn prove(parts: Vec<Vec<Node>>) -> Vec<Hash> {
        let node = |node: &Node| defined(node.index << node.level, (node.index + 1) << node.level);
        parts.iter().map(|part| part_hash(&part.iter().map(node).collect::<Vec<_>>()).unwrap()).collect()
    }

    #[test]
    fn the_edge_grows_into_the_defined_tree() {
        let mut edge = Edge::default();
        for n in 0..70 {
            assert_eq!(edge.root(), defined(0, n));
            assert_eq!(Edge::new(n, edge.nodes().to_vec()), Some(edge.clone()));
            for level in 0..4 {
                let caught = edge.clone().push_and_catch(leaf(n), level);
                let whole = (n + 1).is_multiple_of(1 << level);
                assert_eq!(caught, whole.then(|| defined(n + 1 - (1 << level), n + 1)), "{n} {level}");
            }
            edge.push(leaf(n));
        }
        assert!(Edge::new(3, vec![[0; 32]]).is_none());
    }

    #[test]
    fn every_leaf_is_proven_in_every_tree_and_nothing_else_is() {
        for size in 1..34 {
            let root = defined(0, size);
            for index in 0..size {
                let proof = prove(inclusion_parts(index, size).unwrap());
                assert_eq!(root_of_inclusion(leaf(index), index, size, &proof), Some(root));
                assert_ne!(root_of_inclusion(leaf(index + 1), index, size, &proof), Some(root));
                if size > 1 {
                    assert_ne!(root_of_inclusion(leaf(index), index ^ 1, size, &proof), Some(root));
                    assert_eq!(root_of_inclusion(leaf(index), index, size, &proof[1..]), None);
                }
            }
            assert!(inclusion_parts(size, size).is_none());
        }
    }

    #[test]
    fn a_tree_is_shown_to_extend_every_earlier_one_and_no_other() {
        for new in 1..34 {
            let root = defined(0, new);
            for old in 1..=new {
                let before = defined(0, old);
                let proof = prove(consistency_parts(old, new).unwrap());
                assert!(extends((old, &before), (new, &root), &proof), "{old} {new}");
                assert!(!extends((old, &[7; 32]), (new, &root), &proof), "{old} {new}");
                assert!(!extends((old, &before), (new, &[7; 32]), &proof), "{old} {new}");
            }
        }
        assert!(consistency_parts(0, 3).is_none() && consistency_parts(4, 3).is_none());
    }
}
