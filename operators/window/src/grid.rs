//! How tumbling and sliding windows lie in time, and the panes that they consist of.

use weir_sdk::prelude::*;

/// How windows lie in time: `[n * slide, n * slide + size)`. All in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grid {
    pub(crate) size: i64,
    slide: i64,
    pub(crate) pane: i64,
}

impl Grid {
    /// Windows of `size`, `slide` apart. Tumbling where the two are equal.
    pub(crate) fn new(size: i64, slide: i64) -> Grid {
        Grid { size, slide, pane: greatest_common_divisor(size, slide) }
    }

    pub(crate) fn pane_of(&self, timestamp: Timestamp) -> Timestamp {
        timestamp - timestamp.rem_euclid(self.pane)
    }

    /// Start of the first window that holds the pane at `pane`.
    pub(crate) fn first_window(&self, pane: Timestamp) -> Timestamp {
        let earliest = pane + self.pane - self.size;
        earliest + (-earliest).rem_euclid(self.slide)
    }

    /// Start of the last window that holds the pane at `pane`.
    pub(crate) fn last_window(&self, pane: Timestamp) -> Timestamp {
        pane - pane.rem_euclid(self.slide)
    }

    /// Start of the first window that holds the pane at `pane` and ends after `sent_until`, found without looking at those before.
    pub(crate) fn unsent_window(&self, pane: Timestamp, sent_until: Timestamp) -> Option<Timestamp> {
        let (first, last) = (self.first_window(pane), self.last_window(pane));
        // A watermark may be any time, also the last there is.
        match i128::from(sent_until) - i128::from(first + self.size) {
            ..0 => Some(first),
            passed if passed > i128::from(last - first) => None,
            passed => Some(first + (passed as i64 / self.slide + 1) * self.slide).filter(|window| *window <= last),
        }
    }

    /// Times for which nothing here overflows; spans are far shorter.
    pub(crate) fn holds(&self, timestamp: Timestamp) -> bool {
        const FAR: Timestamp = Timestamp::MAX / 4;
        (-FAR..FAR).contains(&timestamp)
    }
}

/// The longest span of which both are multiples.
pub(crate) fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_unsent_window_of_a_pane_is_the_one_that_looking_at_all_finds() {
        for (size, slide) in [(10, 10), (10, 5), (6, 4), (7, 2), (9, 1)] {
            let grid = Grid::new(size, slide);
            for pane in (-40..40).map(|n| n * grid.pane) {
                let windows: Vec<Timestamp> =
                    (-200..200).map(|n| n * slide).filter(|start| *start <= pane && pane + grid.pane <= *start + size).collect();
                assert_eq!((windows[0], windows[windows.len() - 1]), (grid.first_window(pane), grid.last_window(pane)));
                for sent_until in (-150..150).chain([Timestamp::MIN, Timestamp::MAX]) {
                    let expected = windows.iter().copied().find(|start| start + size > sent_until);
                    assert_eq!(grid.unsent_window(pane, sent_until), expected, "{size}/{slide} {pane} {sent_until}");
                }
            }
        }
    }
}
