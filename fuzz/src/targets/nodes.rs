//! What nodes of the cluster say, and who pretends to be one.

use std::sync::LazyLock;

use weir_model::{Attempt, CheckpointId, Epoch};
use weir_protocol::{Command, Envelope, Execution, JobSpec, Order, Placement, Prepare, WorkerAddress, decode, encode, follows};
use weir_transport::pki::{self, Validity};
use weir_transport::{Identity, Role};

pub(super) fn report(bytes: &[u8]) -> String {
    weir_coordinator::fuzz::report(bytes)
}

/// What a coordinator says, as the JSON of it or as it comes: read, and of a preparation all that needs no disk.
pub(super) fn command(bytes: &[u8]) -> String {
    let framed = serde_json::from_slice::<serde_json::Value>(bytes).map(|value| encode(&value, &[]));
    let Ok(Envelope { message: Order { epoch, command }, .. }) = decode::<Order>(framed.as_deref().unwrap_or(bytes)) else {
        return "unreadable".to_owned();
    };
    let is_followed = follows(epoch, epoch, &[]);
    let of = command.execution().map(|execution| execution.to_string());
    match command {
        Command::Prepare(prepare) => weir_worker::fuzz::prepare(&prepare),
        other => format!("{} of {of:?} {is_followed}", format!("{other:?}").split([' ', '(']).next().unwrap_or_default()),
    }
}

const EPOCH: Epoch = Epoch { origin: [7; 16], count: 1 };

pub(super) fn commands() -> Vec<Vec<u8>> {
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(3) };
    let text = "[job]\nname = \"j\"\nparallelism = 2\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\n\
                connector = \"blackhole\"\ninput = \"in\"\n";
    let spec = JobSpec {
        file: "j.toml".to_owned(),
        text: text.to_owned(),
        overrides: vec![("job.name".to_owned(), "\"j\"".to_owned())],
        environment: [("A".to_owned(), "1".to_owned())].into(),
        job_dir: "/jobs".to_owned(),
        dead_letters: "/dead".to_owned(),
        allow_repeated_output: false,
        components: [].into(),
        natives: [].into(),
    };
    let address = |worker: &str| WorkerAddress { worker: worker.to_owned(), address: "x:1".to_owned() };
    let prepare = Prepare {
        execution: execution.clone(),
        spec,
        placement: Placement { workers: vec![address("a"), address("b")], tasks: vec![0, 1] },
        storage: "memory:".to_owned(),
        restore: None,
        first_checkpoint: CheckpointId(5),
        edges_apart: Vec::new(),
        retract_after: None,
    };
    let commands = [
        Command::Prepare(Box::new(prepare)),
        Command::Trigger { execution: execution.clone(), checkpoint: CheckpointId(6), stop: false, unaligned: false },
        Command::Welcome { keep: vec![execution.clone()], succeeds: vec![EPOCH] },
        Command::Cancel { execution, finish: true },
    ];
    let orders = commands.into_iter().map(|command| Order { epoch: EPOCH, command });
    orders.filter_map(|order| serde_json::to_vec(&order).ok()).collect()
}

/// A node of a cluster that nobody else knows.
static NODE: LazyLock<Identity> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let (ca, node) = (folder.path().join("ca"), folder.path().join("node"));
    pki::create_cluster(&ca, &Validity::days(30)).expect("an authority");
    pki::add_node(&ca, &node, "a", Role::Worker, &[], &Validity::days(30)).expect("a node");
    Identity::load(&node).expect("its certificate")
});

pub(super) fn knock(bytes: &[u8]) -> String {
    weir_transport::fuzz::knock(&NODE, bytes)
}

/// First packets of QUIC, of this version and others, and later ones.
pub(super) fn packets() -> Vec<Vec<u8>> {
    let initial = |first: u8, version: [u8; 4], id: usize| {
        let mut packet = vec![first];
        packet.extend(version);
        packet.push(id as u8);
        packet.extend((0..id).map(|number| number as u8));
        packet.extend([0, 0, 0x44, 0x90]);
        packet.resize(1_200, 0x5a);
        packet
    };
    let v1 = [0, 0, 0, 1];
    let mut packets =
        vec![initial(0xc3, v1, 8), initial(0xc3, v1, 20), initial(0xc3, v1, 4), initial(0xc3, [0x1a, 0x2a, 0x3a, 0x4a], 8)];
    packets.extend([initial(0xe3, v1, 8), initial(0xc3, [0; 4], 8), [0x40; 64].to_vec(), vec![0]]);
    packets
}

pub(super) fn frames(bytes: &[u8]) -> String {
    weir_channel::wire::fuzz::frames(bytes)
}
