//! Sets of pages as sorted runs.

/// Pages `first..first + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Run {
    pub(crate) fn end(self) -> u32 {
        self.first + self.count
    }
}

/// A set of pages: runs in order, disjoint, never touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSet {
    runs: Vec<Run>,
}

impl PageSet {
    /// Adds pages at or behind the end of the set.
    pub(crate) fn push(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.end() >= first => {
                debug_assert!(last.first <= first, "pages are added in order");
                last.count = last.count.max(first + count - last.first);
            }
            _ => self.runs.push(Run { first, count }),
        }
    }

    pub(crate) fn union(&self, other: &PageSet) -> PageSet {
        let mut all = PageSet { runs: Vec::with_capacity(self.runs.len() + other.runs.len()) };
        let (mut a, mut b) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x.first <= y.first => a.next(),
                (Some(_), None) => a.next(),
                (_, Some(_)) => b.next(),
                (None, None) => return all,
            };
            next.into_iter().for_each(|run| all.push(run.first, run.count));
        }
    }

    /// The pages before `end`.
    pub(crate) fn below(&self, end: u32) -> PageSet {
        let runs = self.runs.iter().take_while(|run| run.first < end);
        PageSet { runs: runs.map(|run| Run { first: run.first, count: run.count.min(end - run.first) }).collect() }
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.count as usize).sum()
    }

    /// The pages, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| run.first..run.end())
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        let after = self.runs.partition_point(|run| run.first <= page);
        after > 0 && page < self.runs[after - 1].end()
    }
}

impl FromIterator<u32> for PageSet {
    /// From pages in ascending order.
    fn from_iter<I: IntoIterator<Item = u32>>(pages: I) -> PageSet {
        let mut set = PageSet::default();
        pages.into_iter().for_each(|page| set.push(page, 1));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_union_holds_exactly_the_pages_of_both() {
        let mut random = 1u32;
        for _ in 0..200 {
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            for set in &mut sets {
                for _ in 0..20 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    set.insert(random >> 26);
                }
            }
            let [a, b] = sets.each_ref().map(|set| set.iter().copied().collect::<PageSet>());
            let union = a.union(&b);
            let expected: BTreeSet<u32> = sets[0].union(&sets[1]).copied().collect();
            assert!(union.iter().eq(expected.iter().copied()));
            assert!(union.below(30).iter().eq(expected.iter().copied().filter(|&page| page < 30)));
            assert!(union.runs().windows(2).all(|pair| pair[0].end() < pair[1].first), "runs never touch");
            assert_eq!(union.len(), expected.len());
            assert!((0..70).all(|page| union.contains(page) == expected.contains(&page)));
        }
    }
}
