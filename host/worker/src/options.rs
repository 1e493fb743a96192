//! What a worker needs of the process it runs in. Each trait has one real implementation; tests have their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use weir_connectors::{Reach, SettingError, SinkFactory, SourceFactory};
use weir_model::Digest;
use weir_protocol::{Report, WorkerId};
use weir_sandbox::Sandbox;
use weir_storage::{JobStorage, StorageError};
use weir_task::InstanceFactory;

use crate::Network;
use crate::executor::Executor;

/// The way to the coordinator. Calls return at once, and come from many threads.
pub trait Reports: Send + Sync {
    /// Says something about an execution.
    fn report(&self, report: Report);
}

/// Where components come from.
pub trait ComponentSource: Send + Sync {
    /// The bytes of a component. May wait for another process.
    ///
    /// # Errors
    /// Why it cannot be had, with a hint.
    fn fetch(&self, digest: Digest) -> Result<Vec<u8>, String>;
}

/// Where sources and sinks come from.
pub trait Connectors: Send + Sync {
    /// A source with the settings of a job file.
    ///
    /// # Errors
    /// The setting that cannot be used.
    fn source(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError>;

    /// A sink with the settings of a job file.
    ///
    /// # Errors
    /// The setting that cannot be used.
    fn sink(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError>;
}

/// The connectors that Weir comes with.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltinConnectors;

impl Connectors for BuiltinConnectors {
    fn source(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SourceFactory>, SettingError> {
        weir_connectors::source(connector, settings, &Reach::default())
    }

    fn sink(&self, connector: &str, settings: &Map<String, Value>) -> Result<Box<dyn SinkFactory>, SettingError> {
        weir_connectors::sink(connector, settings, &Reach::default())
    }
}

/// Where checkpoints are.
pub trait Storages: Send + Sync {
    /// Opens the checkpoints of a job below a URL.
    ///
    /// # Errors
    /// If the place cannot be used.
    fn open(&self, url: &str, job: &str) -> Result<JobStorage, StorageError>;
}

/// Storages as their URLs say.
#[derive(Clone, Copy, Debug, Default)]
pub struct UrlStorages;

impl Storages for UrlStorages {
    fn open(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        JobStorage::open(url, job)
    }
}

/// What a worker is made of.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Its name: placements name it.
    pub name: WorkerId,
    /// Runs components.
    pub sandbox: Sandbox,
    /// Finds components.
    pub components: Arc<dyn ComponentSource>,
    /// Makes sources and sinks.
    pub connectors: Arc<dyn Connectors>,
    /// Opens checkpoints.
    pub storages: Arc<dyn Storages>,
    /// Operators that run natively instead of their component, by uid. For measuring what the sandbox costs: their state is
    /// not captured.
    pub native: BTreeMap<String, Arc<dyn InstanceFactory>>,
    /// The data plane to other workers; none where this is the only one.
    pub network: Option<Arc<dyn Network>>,
    /// The way to the coordinator.
    pub reports: Arc<dyn Reports>,
    /// Runs what takes time.
    pub executor: Arc<dyn Executor>,
    /// Bytes of an execution's snapshots that may wait for the storage before captures that can wait are put off; by default
    /// [`CONGESTED_BYTES_DEFAULT`].
    pub congested_bytes: usize,
}

/// Bytes of snapshots that may wait, by default.
pub const CONGESTED_BYTES_DEFAULT: usize = 128 << 20;
