//! Which certificates end soon, and when that was said. Pure.
//!
//! A node whose certificate has ended is heard by nobody, and a cluster made in one go ends on one day. So it is said from 30 days before,
//! once a day, to those who watch the jobs that would stand still.

use std::collections::BTreeMap;

/// How long before its end a certificate is warned of.
const WARNED_MS: u64 = 30 * DAY_MS;

/// How often from then on.
const DAY_MS: u64 = 86_400_000;

/// When which node was warned of last, by the wall clock.
#[derive(Default)]
pub(crate) struct Expiry {
    warned_ms: BTreeMap<String, u64>,
}

impl Expiry {
    /// Of nodes and the ends of their certificates (0: not known), those that are to be warned of now, each with what to say.
    pub(crate) fn due<'a>(&mut self, wall_ms: u64, nodes: impl Iterator<Item = (&'a str, u64)>) -> Vec<(String, String)> {
        let (mut due, mut warned) = (Vec::new(), BTreeMap::new());
        for (node, until_ms) in nodes.filter(|(_, until_ms)| *until_ms > 0) {
            let left_ms = until_ms.saturating_sub(wall_ms);
            if left_ms >= WARNED_MS {
                continue;
            }
            let before_ms = self.warned_ms.get(node).copied().filter(|before_ms| wall_ms.abs_diff(*before_ms) < DAY_MS);
            warned.insert(node.to_owned(), before_ms.unwrap_or(wall_ms));
            if before_ms.is_none() {
                let days = left_ms / DAY_MS;
                let message = format!(
                    "the certificate of {node} expires in {days} days; `weir cluster add-node` makes a new one, which counts once its files \
                     are in the place of the old ones"
                );
                due.push((node.to_owned(), message));
            }
        }
        // Nodes that are gone, or have a new certificate, are forgotten.
        self.warned_ms = warned;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s132_an_end_is_told_once_a_day_from_30_days_before() {
        let mut expiry = Expiry::default();
        let start = 1_000 * DAY_MS;
        let mut due = |day: u64, nodes: &[(&str, u64)]| {
            let nodes = nodes.iter().map(|(node, days)| (*node, if *days == 0 { 0 } else { start + days * DAY_MS }));
            let due = expiry.due(start + day * DAY_MS, nodes);
            due.into_iter()
                .map(|(node, said)| format!("{node} {}", said.split(" expires in ").last().unwrap_or_default()))
                .collect::<Vec<_>>()
        };
        assert_eq!(due(0, &[("a", 40), ("b", 31), ("c", 0)]), [""; 0]);
        let said = due(2, &[("a", 40), ("b", 31), ("c", 0)]);
        assert!(said.len() == 1 && said[0].starts_with("b 29 days; `weir cluster add-node`"), "{said:?}");
        assert_eq!(due(2, &[("a", 40), ("b", 31)]), [""; 0], "once a day");
        assert_eq!(due(3, &[("b", 31)]).len(), 1);
        assert_eq!(due(4, &[("b", 400)]), [""; 0], "it has a new one");
        assert!(due(380, &[("b", 400)])[0].starts_with("b 20 days"));
        assert!(due(500, &[("b", 400)])[0].starts_with("b 0 days"), "it is over");
    }
}
