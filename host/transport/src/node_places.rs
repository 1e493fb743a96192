//! Places for connections of nodes: few for each, so that one node which has gone bad leaves places to the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::NodeId;

/// How many connections each node has.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePlaces(Arc<Mutex<HashMap<NodeId, usize>>>);

/// The place of one connection. It is free when this is dropped.
#[derive(Debug)]
pub(crate) struct NodePlace {
    places: NodePlaces,
    node: NodeId,
}

impl NodePlaces {
    fn counts(&self) -> MutexGuard<'_, HashMap<NodeId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more place for a node; none if it has as many as it may.
    pub(crate) fn take(&self, node: &NodeId, places_max: usize) -> Option<NodePlace> {
        let mut counts = self.counts();
        let count = counts.entry(node.clone()).or_default();
        if *count >= places_max {
            return None;
        }
        *count += 1;
        Some(NodePlace { places: self.clone(), node: node.clone() })
    }
}

impl Drop for NodePlace {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        match counts.get_mut(&self.node) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s134_a_node_has_its_places_and_leaves_those_of_others() {
        let places = NodePlaces::default();
        let (a, b) = (NodeId::new("a").unwrap(), NodeId::new("b").unwrap());
        let mut held: Vec<_> = (0..3).map(|_| places.take(&a, 3).unwrap()).collect();
        assert!(places.take(&a, 3).is_none() && places.take(&b, 3).is_some());
        held.pop();
        assert!(places.take(&a, 3).is_some());
        drop(held);
        assert!(places.counts().is_empty(), "of who has none nothing is kept");
    }
}
