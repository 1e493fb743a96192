//! What must hold after each event, beyond what the parts complain about themselves.

use std::collections::BTreeSet;

use super::World;

impl World {
    /// No file is deleted that a checkpoint names which can be gone on from.
    pub(super) fn check_deleted(&mut self) {
        let deleted: BTreeSet<String> = self.disk.take_deleted().into_iter().collect();
        if deleted.is_empty() {
            return;
        }
        let state = match self.reader.state() {
            Ok(state) => state,
            Err(error) => return self.outside.complain(format!("the log cannot be read: {error}")),
        };
        let is_named = |name: &String| state.checkpoints.iter().any(|checkpoint| checkpoint.manifest == *name);
        self.named.retain(|name, _| is_named(name));
        for checkpoint in &state.checkpoints {
            if !self.named.contains_key(&checkpoint.manifest) {
                match self.reader.stored_manifest(checkpoint) {
                    Ok(manifest) => {
                        let files = manifest.segments().map(|segment| segment.file.clone()).collect();
                        self.named.insert(checkpoint.manifest.clone(), files);
                    }
                    Err(error) => return self.outside.complain(format!("a manifest cannot be read: {error}")),
                }
            }
            let named = self.named.get(&checkpoint.manifest);
            if let Some(file) = named.and_then(|files| files.intersection(&deleted).next()) {
                self.outside.complain(format!("file {file} is deleted, and checkpoint {} needs it", checkpoint.id));
            }
        }
    }
}
