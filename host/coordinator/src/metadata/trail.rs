//! What people did to the cluster, as far as it is no job's: its events.
//!
//! ```text
//! cluster-event/<number>       JobEvent; number as 8 bytes, big-endian
//! ```

use weir_protocol::api::JobEvent;

use super::{Batch, Database, EVENTS_READ_MAX, MetadataError};

/// Events kept; older ones are dropped. Each is an act of a person or of a program of theirs, some hundred bytes.
const CLUSTER_EVENTS_MAX: u64 = 10_000;

const KEY: &[u8] = b"cluster-event/";

fn key(number: u64) -> Vec<u8> {
    [KEY, &number.to_be_bytes()].concat()
}

impl Batch<'_> {
    /// Adds an event, and drops the one that is too old now.
    pub(super) fn put_cluster_event(&self, event: &JobEvent) -> rusqlite::Result<()> {
        self.put(&key(event.number), event)?;
        match event.number.checked_sub(CLUSTER_EVENTS_MAX) {
            Some(old) => self.delete(&key(old)),
            None => Ok(()),
        }
    }
}

impl Database {
    /// Number of the last event; 0 before the first.
    pub(crate) fn last_cluster_event(&self) -> Result<u64, MetadataError> {
        match self.last(&key(0), &key(u64::MAX))? {
            Some((key, value)) => self.decode(&key, &value).map(|event: JobEvent| event.number),
            None => Ok(0),
        }
    }

    /// Writes an event.
    pub(crate) fn put_cluster_event(&self, event: &JobEvent) -> Result<(), MetadataError> {
        self.write(|batch| batch.put_cluster_event(event))
    }

    /// Events with numbers greater than `after`, oldest first; no more than a few hundred at once.
    pub(crate) fn cluster_events(&self, after: u64) -> Result<Vec<JobEvent>, MetadataError> {
        let entries = self.range(&key(after.saturating_add(1)), &key(u64::MAX), Some(EVENTS_READ_MAX))?;
        entries.into_iter().map(|(key, value)| self.decode(&key, &value)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_protocol::access::Person;
    use weir_protocol::api::EventLevel;

    use super::*;

    fn event(number: u64) -> JobEvent {
        let by = Some(Person::Token("ci".to_owned()));
        JobEvent { number, at_ms: number, level: EventLevel::Info, kind: "k".to_owned(), message: String::new(), by }
    }

    #[test]
    fn the_last_events_are_kept_in_order_and_told_with_who_did_it() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Database::open(folder.path()).unwrap();
        assert_eq!(metadata.last_cluster_event().unwrap(), 0);
        for number in [1, 2, 300, CLUSTER_EVENTS_MAX + 1] {
            metadata.put_cluster_event(&event(number)).unwrap();
        }
        drop(metadata);
        let metadata = Database::open(folder.path()).unwrap();
        assert_eq!(metadata.last_cluster_event().unwrap(), CLUSTER_EVENTS_MAX + 1);
        let kept = metadata.cluster_events(0).unwrap();
        assert_eq!(kept, [event(2), event(300), event(CLUSTER_EVENTS_MAX + 1)], "the first is too old");
        assert_eq!(metadata.cluster_events(2).unwrap().len(), 2);
    }

    #[test]
    fn events_from_before_people_were_named_are_read() {
        let old = r#"{"number":1,"at_ms":2,"level":"info","kind":"k","message":"m"}"#;
        assert_eq!(serde_json::from_str::<JobEvent>(old).unwrap().by, None);
    }
}
