//! `weir cluster ...`: making a cluster's certificates and token, and looking at a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use weir_api::Token;
use weir_model::ErrorNumber;
use weir_plan::parse_duration;
use weir_protocol::api::StrayWorker;
use weir_transport::pki::{Validity, add_node, create_cluster, renew_authority, revoke};
use weir_transport::{Role, TransportError};

use crate::client::{Client, ClusterArgs};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::job::list;
use crate::output;

/// Name of the token file, in the cluster's folder and in that of the node that runs the coordinator.
pub(crate) const TOKEN: &str = "token";

/// The node that `weir cluster init` gives the token, as it is to run the coordinator.
const COORDINATOR: &str = "coordinator";

/// Names under which every node can be reached on its own machine.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Commands about clusters.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Create a new cluster: its certificate authority, its token, and a folder for each node
    Init {
        /// The folder to make it in; keep it, and keep it safe: who has it can add nodes
        dir: PathBuf,
        /// How long certificates are valid, such as 365d
        #[arg(long, value_name = "DURATION", default_value = "3650d", value_parser = validity)]
        validity: Validity,
        /// A node that is to run a coordinator, and the host names and addresses at which its API is to be reached; may be given
        /// several times. A node called coordinator is one by its name
        #[arg(long = "coordinator", value_name = "NAME[=HOST,..]", value_parser = node)]
        coordinators: Vec<Node>,
        /// A node and the host names and addresses at which its API is to be reached; may be given several times [default:
        /// coordinator, worker-1 and worker-2]
        #[arg(long = "node", value_name = "NAME[=HOST,..]", value_parser = node)]
        nodes: Vec<Node>,
    },
    /// Create the folder of one more node
    AddNode {
        /// The folder of the cluster, as `weir cluster init` made it
        dir: PathBuf,
        /// The node and its host names and addresses
        #[arg(value_name = "NAME[=HOST,..]", value_parser = node)]
        node: Node,
        /// It is to run a coordinator, and no worker; so is a node called coordinator
        #[arg(long)]
        coordinator: bool,
        /// The folder to make [default: nodes/NAME in the cluster's folder]
        #[arg(long, short, value_name = "FOLDER")]
        output: Option<PathBuf>,
        /// How long the certificate is valid, such as 365d
        #[arg(long, value_name = "DURATION", default_value = "3650d", value_parser = validity)]
        validity: Validity,
    },
    /// Make another certificate authority for a cluster; nodes that have its ca.pem believe both
    RenewAuthority {
        /// The folder of the cluster, as `weir cluster init` made it
        dir: PathBuf,
        /// The folder to make the new authority in; nodes are added from there
        new: PathBuf,
        /// How long its certificate is valid, such as 365d
        #[arg(long, value_name = "DURATION", default_value = "3650d", value_parser = validity)]
        validity: Validity,
    },
    /// Revoke the certificate of a node: its key is lost, or it has gone bad
    Revoke {
        /// The folder of the cluster, as `weir cluster init` made it
        dir: PathBuf,
        /// The node, or a folder with its node.pem
        node: PathBuf,
    },
    /// Take the place of a coordinator that is lost for good: its workers end what they run, and join the one that is asked
    Adopt {
        /// The lost coordinator, as `weir cluster status` names it beside the workers that follow it: the first 8 digits or more
        #[arg(value_name = "COORDINATOR")]
        origin: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// List what people did to the cluster: tokens, components, jobs that were removed. What they did to a job: `weir job events`
    Events {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Show the cluster's coordinator, its workers and slots
    Status {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

/// A node as a flag names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    name: String,
    hosts: Vec<String>,
    /// It leads. Otherwise it is a worker.
    leads: bool,
}

impl Node {
    fn role(&self) -> Role {
        if self.leads { Role::Coordinator } else { Role::Worker }
    }
}

fn node(text: &str) -> Result<Node, String> {
    let (name, hosts) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() {
        return Err("expected NAME or NAME=HOST,HOST".to_owned());
    }
    let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect();
    Ok(Node { name: name.to_owned(), hosts, leads: name == COORDINATOR })
}

fn validity(text: &str) -> Result<Validity, String> {
    const DAY: Duration = Duration::from_secs(86_400);
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    let days = duration.as_secs().div_ceil(DAY.as_secs());
    match u32::try_from(days) {
        Ok(days @ 1..=36_500) => Ok(Validity::days(days)),
        _ => Err("expected a day to a hundred years, such as 365d".to_owned()),
    }
}

pub(crate) fn execute(command: Command, global: &Global) -> anyhow::Result<()> {
    match command {
        Command::Init { dir, validity, coordinators, nodes } => {
            let leading = coordinators.into_iter().map(|node| Node { leads: true, ..node });
            init(&dir, &validity, leading.chain(nodes).collect(), global)
        }
        Command::RenewAuthority { dir, new, validity } => {
            renew_authority(&dir, &new, &validity).map_err(|error| of_transport(&error))?;
            global.note(
                "bring its ca.pem to every node and client, which need no restart; then give each node the certificate and key of a folder \
                 from here (`weir cluster add-node`); last, take the old authority, which is the second in ca.pem, out of every ca.pem",
            );
            output::print(&format!("{}\n", new.join("ca.pem").display()))
        }
        Command::Revoke { dir, node } => {
            let named = nodes_folder(&dir).join(&node);
            let folder = if named.join("node.pem").exists() { named } else { node };
            let list = revoke(&dir, &folder).map_err(|error| of_transport(&error))?;
            global.note("bring this list into the folder of every node, beside its node.pem; it counts there within a second");
            output::print(&format!("{}\n", list.display()))
        }
        Command::AddNode { dir, node, coordinator, output, validity } => {
            let node = Node { leads: coordinator || node.leads, ..node };
            let folder = output.unwrap_or_else(|| nodes_folder(&dir).join(&node.name));
            make_node(&dir, &folder, &node, &validity)?;
            global.note(&format!("bring {} to its machine and start it there: weir worker --identity ...", folder.display()));
            if global.json {
                return output::print_json(&json!({ "node": node.name, "folder": folder }));
            }
            output::print(&format!("{}\n", folder.display()))
        }
        Command::Adopt { origin, cluster } => adopt(&Client::new(cluster.target_or_local(global)?)?, &origin, global),
        Command::Events { cluster } => events(&Client::new(cluster.target_or_local(global)?)?, global),
        Command::Status { cluster } => status(&Client::new(cluster.target_or_local(global)?)?, global),
    }
}

fn nodes_folder(dir: &Path) -> PathBuf {
    dir.join("nodes")
}

fn failed(message: String) -> Failure {
    Failure::new(ErrorNumber::ClusterFilesNotMade, Exit::Usage, message)
}

fn of_transport(error: &TransportError) -> Failure {
    failed(error.to_string())
}

fn init(dir: &Path, validity: &Validity, nodes: Vec<Node>, global: &Global) -> anyhow::Result<()> {
    let nodes = match nodes.is_empty() {
        false => nodes,
        true => [COORDINATOR, "worker-1", "worker-2"]
            .map(|name| Node { name: name.to_owned(), hosts: Vec::new(), leads: name == COORDINATOR })
            .to_vec(),
    };
    if let Some(twice) =
        nodes.iter().enumerate().find(|(index, node)| nodes[..*index].iter().any(|other| other.name == node.name))
    {
        return Err(failed(format!("cannot make a cluster: there are two nodes named {}", twice.1.name)).into());
    }
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        let message = format!("cannot make a cluster in {}: the folder is not empty", dir.display());
        let hint = "name a new folder; `weir cluster add-node` adds a node to a cluster that is there";
        return Err(failed(message).hint(hint).into());
    }
    let cluster = create_cluster(dir, validity).map_err(|error| of_transport(&error))?;
    let token = Token::generate().and_then(|token| token.create(&dir.join(TOKEN)).map(|()| token));
    let token = token.map_err(|error| failed(error.to_string()))?;
    for node in &nodes {
        let folder = nodes_folder(dir).join(&node.name);
        make_node(dir, &folder, node, validity)?;
        if node.leads {
            token.create(&folder.join(TOKEN)).map_err(|error| failed(error.to_string()))?;
        }
    }
    if global.json {
        let nodes: Vec<_> =
            nodes.iter().map(|node| json!({ "node": node.name, "folder": nodes_folder(dir).join(&node.name) })).collect();
        return output::print_json(&json!({ "cluster": cluster.as_str(), "folder": dir, "nodes": nodes }));
    }
    let shown = dir.display();
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    global.note(&format!(
        "cluster {} is in {shown}\n  ca.pem      its certificate authority: clients on other machines trust it (WEIR_CA)\n  \
         ca-key.pem  keep it safe: who has it can add nodes\n  token       clients on other machines show it (WEIR_TOKEN_FILE)\n  \
         nodes/      bring each node its folder, over a safe way: {}",
        cluster.as_str(),
        names.join(", "),
    ));
    output::print(&format!("{}\n", cluster.as_str()))
}

fn make_node(dir: &Path, folder: &Path, node: &Node, validity: &Validity) -> Result<(), Failure> {
    let mut hosts: Vec<String> = LOCAL_HOSTS.map(str::to_owned).to_vec();
    hosts.extend(node.hosts.iter().filter(|host| !LOCAL_HOSTS.contains(&host.as_str())).cloned());
    if folder.join("node.pem").exists() {
        return Err(failed(format!("cannot make node {}: {} has a certificate already", node.name, folder.display()))
            .hint("remove the folder first if the node is to get a new one"));
    }
    match add_node(dir, folder, &node.name, node.role(), &hosts, validity) {
        Ok(_) => Ok(()),
        Err(error) => Err(of_transport(&error)),
    }
}

fn status(client: &Client, global: &Global) -> anyhow::Result<()> {
    let (status, workers) = (client.status()?, client.workers()?);
    if global.json {
        return output::print_json(&json!({ "cluster": status, "workers": workers }));
    }
    let started = output::ago(status.started_at_ms);
    let text = format!(
        "cluster      {}\ncoordinator  {}, id {}, version {}, started {started}\ncertificate  {}\nworkers      {} connected\nslots        {} of {} used\n",
        status.cluster,
        client.address(),
        status.epoch,
        status.version,
        certificate(status.certificate_until_ms, output::now_ms()),
        status.workers,
        status.slots_used,
        status.slots,
    );
    output::print(&text)?;
    if let Some(one) = status.led_elsewhere.first() {
        output::print(&format!("\n{}", led_elsewhere(&status.led_elsewhere)))?;
        global.note(&format!(
            "these workers run what another coordinator began, and do not join; where that one is lost for good: weir cluster adopt {}",
            one.led_by.origin_short()
        ));
    }
    if workers.is_empty() {
        global.note("no worker has connected yet; `weir worker --coordinator HOST:PORT --identity DIR` starts one");
        return Ok(());
    }
    output::print(&format!("\n{}", crate::worker::table(&workers)))?;
    let ending = workers.iter().filter(|worker| worker.certificate_until_ms > 0);
    for worker in ending.filter(|worker| days_left(worker.certificate_until_ms, output::now_ms()) < WARNED_DAYS) {
        global.warn(&format!(
            "worker {}: its certificate is {}",
            worker.name,
            certificate(worker.certificate_until_ms, output::now_ms())
        ));
    }
    Ok(())
}

/// Workers that follow another coordinator, for people.
fn led_elsewhere(workers: &[StrayWorker]) -> String {
    let header = ["WORKER", "SEEN", "AT", "FOLLOWS", "RUNS"].map(str::to_owned).to_vec();
    let rows = workers.iter().map(|worker| {
        vec![
            worker.worker.clone(),
            output::ago(worker.seen_at_ms),
            worker.from.clone(),
            format!("coordinator {}", worker.led_by),
            worker.jobs.join(", "),
        ]
    });
    output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

fn adopt(client: &Client, origin: &str, global: &Global) -> anyhow::Result<()> {
    let status = client.adopt(origin)?;
    if global.json {
        return output::print_json(&status);
    }
    global.note(
        "workers of that coordinator join within seconds, and end what they run for it: submit its jobs again, they go on from their          last checkpoints. Should it come back after all, it does not lead these workers any more",
    );
    output::print(&format!("{}\n", status.epoch))
}

fn events(client: &Client, global: &Global) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        let events = client.cluster_events(after)?;
        let Some(last) = events.last() else { return Ok(()) };
        after = last.number;
        list::print_events(&events, global)?;
    }
}

/// How long before its end a certificate is warned of.
const WARNED_DAYS: u64 = 30;

fn days_left(until_ms: u64, now_ms: u64) -> u64 {
    until_ms.saturating_sub(now_ms) / 86_400_000
}

/// Until when a certificate counts.
fn certificate(until_ms: u64, now_ms: u64) -> String {
    let days = days_left(until_ms, now_ms);
    let until = output::time(i64::try_from(until_ms).unwrap_or(i64::MAX));
    let warning = if days < WARNED_DAYS {
        "; make a new one with `weir cluster add-node`: it counts once its files are in the place of the old ones"
    } else {
        ""
    };
    format!("valid until {until}, {days} days{warning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_with_their_hosts() {
        let named = |name: &str, hosts: &[&str]| Node {
            name: name.to_owned(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            leads: name == COORDINATOR,
        };
        assert_eq!(node("w1"), Ok(named("w1", &[])));
        assert_eq!(node("w1=10.0.0.5, weir.example"), Ok(named("w1", &["10.0.0.5", "weir.example"])));
        assert!(node("=a").is_err() && node("").is_err());
    }

    #[test]
    fn certificates_are_valid_for_whole_days() {
        let days = |text| {
            validity(text).map(|validity| validity.until.duration_since(validity.from).unwrap_or_default().as_secs() / 86_400)
        };
        assert_eq!(days("365d"), Ok(365));
        assert_eq!(days("1h"), Ok(1));
        assert!(validity("0s").is_err() && validity("40000d").is_err() && validity("a year").is_err());
    }
}
